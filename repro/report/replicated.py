"""The section on published figures: what `analysis.claims` found, side by side for every machine and stack."""

from __future__ import annotations

import re

from repro.analysis import claims
from repro.analysis import published as figures
from repro.analysis.records import Measured
from repro.records import wording
from repro.records.claim import Claim, ClaimOutcome, ClaimVerdict, JudgedClaim, JudgedClaims
from repro.report import elements
from repro.report.elements import Cell, Figure, Forest, ForestRow, Head, Point, Quantity, Section, Table
from repro.report.sources import Source

MEANING = (
    "Reproduced as published: by the published way of measuring, which verifies nothing. Holds as judged: the kernel "
    "is correct, and the judge's own figure lies within the tolerance."
)
TOLERANCE = (
    "A claim's tolerance was declared in artifacts/claims.toml before a bundle was held against it. Ratios compare "
    "between machines, absolute figures only where nothing hard differs."
)


def judge(sources: list[Source]) -> tuple[list[Claim], JudgedClaims]:
    """Every shipped claim, and its outcomes in these bundles."""
    published = figures.load()
    found: list[Measured] = [source.measured for source in sources if source.measured is not None]
    return published, claims.judge(published, found)


def section(found: JudgedClaims) -> Section:
    """Return what was tried, claim by claim, with a group of columns a stack, and the counts by family."""
    tried = [c for c in found.claims if any(claims.tried(o) for o in c.outcomes)]
    stacks = list(dict.fromkeys(claims.where(o) for c in tried for o in c.outcomes if o.stack))
    text, figures, tables = [], [], []
    if tried:
        columns: list[Head] = ["claim"]
        named = _named(tried, stacks)
        for name in named.values():
            start = f"{name}: " if len(stacks) > 1 else ""
            columns += [(f"{start}published", "quantity"), f"{start}unit", f"{start}tolerated",
                        (f"{start}as published", "quantity"), (f"{start}reproduced as published", "verdict"),
                        (f"{start}as judged", "quantity"), (f"{start}holds as judged", "verdict"),
                        f"{start}why"]  # fmt: skip
        rows = [_line(claim, stacks) for claim in tried]
        caption = "Published figures that were tested"
        legend = "; ".join(f"{name} is {stack}" if len(stacks) > 1 else stack for stack, name in named.items())
        tables += [_families(found), elements.table("claims", f"{caption}: {legend}", columns, rows)]
        figures.append(_forest(tried, named))
        notes = dict.fromkeys(note for claim in tried for outcome in claim.outcomes for note in outcome.notes)
        text += [MEANING, TOLERANCE, *(f"Note: {note}." for note in notes)]
        rest = sum(not any(claims.tried(o) for o in claim.outcomes) for claim in found.claims)
        if rest:
            total, blocked = len(found.claims), found.counts["as_judged"][claims.BLOCKED]
            text.append(
                f"{rest} of {total} claims were not tested: {blocked} are blocked, {rest - blocked} are comparable in "
                "neither way. Every reason stands under `Claims not tested`. "
                "Only families with a tested claim are listed."
            )
    return elements.section("claims", "Claims", text=text, figures=figures, tables=tables)


def untested(found: JudgedClaims) -> Section:
    """Return why claims have no verdict, and what would give them one."""
    columns = ["claims", ("n", "integer"), ("verdict", "verdict"), "why", "stack", ("command (first claim)", "code")]
    rest: list[list[Cell]] = [
        [name, int(n), *row]
        for name, n, *row in claims.untried([pair for pair in found.pairs() if not claims.tried(pair[1])])
    ]
    tables = [elements.table("untested", "Published figures that were not tested, by reason", columns, rest)]
    return elements.section("claims-untested", "Claims not tested", tables=tables, paper=False)


def _families(found: JudgedClaims) -> Table:
    of: dict[str, list[ClaimOutcome]] = {}
    for claim in found.claims:
        of.setdefault(claim.family, []).extend(claim.outcomes)
    rows: list[list[Cell]] = [[name, len(outcomes), *(claims.counted(outcomes, side) for side in claims.SIDES)]
            for name, outcomes in of.items() if any(claims.tried(o) for o in outcomes)]  # fmt: skip
    columns = ["claims", ("n", "integer"), "as published", "as judged"]
    return elements.table("claim-families", "Verdicts by family of claims", columns, rows)


def _named(tried: list[JudgedClaim], stacks: list[str]) -> dict[str, str]:
    """Stack -> a short name for columns."""
    pinned = {claims.where(o): o.stack.pinned for claim in tried for o in claim.outcomes if o.stack}
    return {stack: f"{at} ({'pinned' if pinned[stack] else 'off-pin'})" for at, stack in enumerate(stacks, 1)}


def _quantity(side: ClaimVerdict) -> Quantity | None:
    return None if side.measured is None or side.ci95 is None else Quantity(value=side.measured, ci95=side.ci95)


def _line(claim: JudgedClaim, stacks: list[str]) -> list[Cell]:
    row: list[Cell] = [claim.id]
    by_stack = {claims.where(o): o for o in claim.outcomes if o.stack}
    for stack in stacks:
        outcome = by_stack.get(stack)
        if outcome is None:
            row += [claim.value, claim.unit, None, None, None, None, None, "no bundle of this stack measured it"]
            continue
        row += [outcome.published, outcome.unit, f"{outcome.low:.4g} to {outcome.high:.4g}"]
        for side in claims.SIDES:
            row += [_quantity(outcome.side(side)), wording.CLAIM[side][outcome.side(side).verdict]]
        row.append(claims.why(outcome))
    return row


def label(claim: str) -> str:
    """Return the label of a claim in a figure, two lines at most: the number says which problem."""
    return re.sub(r"/(\d+)_[^/]*", r" \1", claim.removeprefix("artifact-")).replace("/", " ")


def _forest(tried: list[JudgedClaim], named: dict[str, str]) -> Figure:
    """Return measured over published of every claim that was judged."""
    rows: list[ForestRow] = []
    for claim in tried:
        points, band = [], None
        for outcome in claim.outcomes:
            found, value = outcome.as_judged, outcome.published
            if outcome.stack and found.measured and found.ci95 and value and found.ci95[0] > 0:
                low, high = (edge / value for edge in found.ci95)
                measured = found.measured / value
                points.append(Point(series=claims.where(outcome), value=measured, low=low, high=high))
                band = [max(outcome.low / value, 0.01), outcome.high / value]
        if points:
            rows.append(ForestRow(label=label(claim.id), points=points, band=band))
    told = "; ".join(f"{r.label} " + ", ".join(f"{p.value:.3g}" for p in r.points) for r in rows)
    series = {stack: f"{name}: {stack}" for stack, name in named.items()}
    return Figure(
        id="forest-claims", kind="forest", title="Judged over published, with the tolerance of each claim",
        alt=f"Judged over published with 95 % intervals, logarithmic; 1 is as published: {told or 'none'}.",
        data=Forest(rows=rows, series=series, line=1.0, x="judged / published"),
    )  # fmt: skip
