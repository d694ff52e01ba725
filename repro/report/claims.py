"""Claims and their verdicts as markdown: a pure function of what `replication` found."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

NOTES = """## How to read this

- REPRODUCED: the measured 95 % interval lies within the tolerance that the claim declares. DIFFERS: outside. AMBIGUOUS:
  across an edge, or bundles of one stack disagree. NOT-COMPARABLE: measured otherwise, or an absolute figure of another
  machine. BLOCKED: needs what was not there.
- Times compare on the published kind of machine alone; ratios compare between machines, and the note says so.
- Every claim with its tolerance, its reason, its source and the command that tests it: artifacts/claims.toml."""


def render(found: dict[str, Any]) -> str:
    """The whole list: what was tried line by line, the rest by reason."""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in found["counts"].items() if n)
    lines = [f"# claims: {counts or 'none'}", _bundles(found["bundles"])]
    tried: list[tuple[dict[str, Any], dict[str, Any]]] = []
    rest: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for claim in found["claims"]:
        for outcome in claim["outcomes"]:
            (tried if outcome["verdict"] in ("REPRODUCED", "DIFFERS", "AMBIGUOUS") else rest).append((claim, outcome))
    if tried:
        head = ["claim", "published", "measured", "verdict", "why", "stack", "notes"]
        lines.append("## Tried\n\n" + _table(head, [_line(*pair) for pair in tried]))
    if rest:
        lines.append("## Not tried\n\n" + _grouped(rest))
    return "\n\n".join([*lines, NOTES]) + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def _bundles(bundles: list[dict[str, Any]]) -> str:
    if not bundles:
        return "No bundle: this is what could be tested, and what it needs."
    return "\n".join(
        f"- `{b['bundle']}` ({b['verb']})" + (f": no measurement: {b['why_not']}" if b["why_not"] else "")
        for b in bundles
    )


def _figure(value: float, unit: str) -> str:
    return f"{value:.4g}{unit}" if unit == "x" else f"{value:.4g} {unit}"


def _measured(claim: dict[str, Any], outcome: dict[str, Any]) -> str:
    if outcome["measured"] is None:
        return "–"
    low, high = outcome["ci95"]
    return f"{_figure(outcome['measured'], claim['unit'])} [{low:.4g}, {high:.4g}]"


def _line(claim: dict[str, Any], outcome: dict[str, Any]) -> list[str]:
    stack = f"{outcome['machine']}, {outcome['stack']['label']}"
    return [claim["id"], _figure(claim["value"], claim["unit"]), _measured(claim, outcome), outcome["verdict"],
            outcome["reason"], stack, "; ".join(outcome["notes"])]  # fmt: skip


def _grouped(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """One line for the claims of a family that share verdict, reason and stack: there are many, with few reasons."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for claim, outcome in pairs:
        stack = outcome["stack"]["label"] if outcome["stack"] else "–"
        family = claim["id"].partition("/")[0]
        groups.setdefault((family, outcome["verdict"], outcome["reason"], stack), []).append(claim)
    rows = [
        [family, len(claims), verdict, reason, stack, claims[0]["command"] or "none in this release"]
        for (family, verdict, reason, stack), claims in groups.items()
    ]
    return _table(["claims", "n", "verdict", "why", "stack", "command of the first"], rows)
