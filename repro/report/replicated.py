"""The section on published figures: what `replication` found, side by side for every machine and stack."""

from __future__ import annotations

from typing import Any

from repro import claims, replication
from repro.claims import Claim
from repro.measured import Measured
from repro.report import elements
from repro.report.elements import Element
from repro.report.sources import Source


def judge(sources: list[Source]) -> tuple[list[Claim], dict[str, Any]]:
    """Every shipped claim, and its outcomes in these bundles."""
    published = claims.load()
    found: list[Measured] = [source.measured for source in sources if source.measured is not None]
    return published, replication.judge(published, found)


def section(found: dict[str, Any]) -> Element:
    """What was tried, claim by claim, with a group of columns a stack."""
    tried = [c for c in found["claims"] if any(o["verdict"] in replication.TRIED for o in c["outcomes"])]
    stacks = list(dict.fromkeys(_stack(o) for c in tried for o in c["outcomes"] if o["stack"]))
    text, figures, tables = [], [], []
    if tried:
        columns = [("claim", "text"), ("published", "quantity"), ("unit", "text"), ("tolerated", "text")]
        named = _named(tried, stacks)
        for name in named.values():
            start = f"{name}: " if len(stacks) > 1 else ""
            columns += [(f"{start}measured", "quantity"), (f"{start}measured / published", "quantity"),
                        (f"{start}verdict", "verdict"), (f"{start}why", "text")]  # fmt: skip
        rows = [_line(claim, stacks) for claim in tried]
        caption = "Published figures that were tested, with 95 % intervals"
        legend = "; ".join(f"{name} is {stack}" if len(stacks) > 1 else stack for stack, name in named.items())
        tables.append(elements.table("claims", f"{caption}: {legend}", columns, rows))
        figures.append(_forest(tried, named))
        text.append(
            "A claim's tolerance was declared in artifacts/claims.toml before a bundle was held against it. Ratios "
            "compare between machines, absolute figures only where nothing hard differs."
        )
        rest = {verdict: n for verdict, n in found["counts"].items() if n and verdict not in replication.TRIED}
        if rest:
            told = ", ".join(f"{n} {verdict}" for verdict, n in rest.items())
            text.append(f"Not tested: {told}; every reason stands under `Claims not tested`.")
    return elements.section("claims", "Claims", text=text, figures=figures, tables=tables)


def untested(found: dict[str, Any]) -> Element:
    """Why claims have no verdict, and what would give them one."""
    columns = [("claims", "text"), ("n", "integer"), ("verdict", "verdict"), ("why", "text"), ("stack", "text"),
               ("command of the first", "code")]  # fmt: skip
    rest = _rest(found)
    tables = [elements.table("untested", "Published figures that were not tested, by reason", columns, rest)]
    return elements.section("claims-untested", "Claims not tested", tables=tables, paper=False)


def _stack(outcome: dict[str, Any]) -> str:
    return f"{outcome['machine']}, {outcome['stack']['label']}"


def _named(tried: list[dict[str, Any]], stacks: list[str]) -> dict[str, str]:
    """Stack -> a short name for columns."""
    pinned = {_stack(o): o["stack"]["pinned"] for claim in tried for o in claim["outcomes"] if o["stack"]}
    return {stack: f"{at} ({'pinned' if pinned[stack] else 'off-pin'})" for at, stack in enumerate(stacks, 1)}


def _over(claim: dict[str, Any], outcome: dict[str, Any]) -> dict[str, Any] | None:
    """Measured over published; None where either is nothing to divide."""
    value = claim["value"]
    if outcome["measured"] is None or not value:
        return None
    return {"value": outcome["measured"] / value, "ci95": [edge / value for edge in outcome["ci95"]]}


def _line(claim: dict[str, Any], stacks: list[str]) -> list[Any]:
    row: list[Any] = [claim["id"], claim["value"], claim["unit"], f"{claim['low']:.4g} to {claim['high']:.4g}"]
    by_stack = {_stack(o): o for o in claim["outcomes"] if o["stack"]}
    for stack in stacks:
        outcome = by_stack.get(stack)
        if outcome is None:
            row += [None, None, None, "no bundle of this stack measured it"]
            continue
        measured = None
        if outcome["measured"] is not None:
            measured = {"value": outcome["measured"], "ci95": outcome["ci95"]}
        why = "; ".join([outcome["reason"], *outcome["notes"]])
        row += [measured, _over(claim, outcome), outcome["verdict"], why]
    return row


def _rest(found: dict[str, Any]) -> list[list[Any]]:
    """A line for the claims of a family that share verdict, reason and stack."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for claim in found["claims"]:
        for outcome in claim["outcomes"]:
            if outcome["verdict"] not in replication.TRIED:
                stack = _stack(outcome) if outcome["stack"] else ""
                name = (claim["id"].partition("/")[0], outcome["verdict"], outcome["reason"], stack)
                groups.setdefault(name, []).append(claim)
    return [[family, len(of), verdict, why, stack, of[0]["command"] or "none in this release"]
            for (family, verdict, why, stack), of in groups.items()]  # fmt: skip


def _forest(tried: list[dict[str, Any]], named: dict[str, str]) -> Element:
    rows = []
    for claim in tried:
        by_stack = {_stack(o): _over(claim, o) for o in claim["outcomes"] if o["stack"]}
        points = [{"series": s, "value": r["value"], "low": r["ci95"][0], "high": r["ci95"][1]}
                  for s, r in by_stack.items() if r and r["ci95"][0] > 0]  # fmt: skip
        band = [max(claim["low"] / claim["value"], 0.01), claim["high"] / claim["value"]] if claim["value"] else None
        if points:
            rows.append({"label": claim["id"], "points": points, "band": band})
    told = "; ".join(f"{r['label']} " + ", ".join(f"{p['value']:.3g}" for p in r["points"]) for r in rows)
    return elements.figure(
        "forest-claims", "forest", "Measured over published, with the tolerance of each claim",
        f"Measured over published with 95 % intervals, logarithmic; 1 is as published: {told or 'none'}.",
        rows=rows, series={stack: f"{name}: {stack}" for stack, name in named.items()}, line=1.0,
        x="measured / published",
    )  # fmt: skip
