"""Sections on published figures: what `analysis.claims` found, for every machine and stack."""

from __future__ import annotations

from repro.analysis import claims
from repro.analysis import published as figures
from repro.analysis.records import VERBS, Source, grouped
from repro.records import wording
from repro.records.claim import Claim, ClaimOutcome, JudgedClaim, JudgedClaims
from repro.report import elements
from repro.report.elements import Cell, Head, Item, Section, Table

_Pair = tuple[JudgedClaim, ClaimOutcome]
_MEANING = (
    "Reproduced as published: by the published way of measuring, which verifies nothing. Holds as judged: the kernel "
    "is correct, and the judge's own figure lies within the tolerance.",
    "A claim's tolerance was declared in artifacts/claims.toml before a bundle was held against it. Ratios compare "
    "between machines, absolute figures only where nothing hard differs.",
)
# The figures that a study is known for, and their heading. The others are counted by family; -v lists them.
_FIRST = {
    "artifact-speedup": "Speedups over torch.compile",
    "agent-speedup-baseline": "Agent over eager",
    "agent-speedup-with-kb": "Agent with knowledge over eager",
}


def judge(sources: list[Source]) -> tuple[list[Claim], JudgedClaims]:
    """Every shipped claim, and its outcomes in these bundles."""
    published = figures.load()
    return published, claims.judge(published, [source for source in sources if source.verb in VERBS])


def _tried(found: JudgedClaims) -> list[_Pair]:
    return [pair for pair in found.pairs() if claims.tried(pair[1])]


def section(found: JudgedClaims) -> Section:
    """Return what was tried, a line for each claim and stack, and the counts by family."""
    pairs = _tried(found)
    if not pairs:
        return elements.section("claims", "Claims")
    notes = dict.fromkeys(note for _, outcome in pairs for note in outcome.notes)
    text = [*_MEANING, *(f"Note: {note}." for note in notes)]
    rest = len(found.claims) - len({claim.id for claim, _ in pairs})
    if rest:
        blocked = found.counts["as_judged"][claims.BLOCKED]
        text.append(
            f"{rest} of {len(found.claims)} claims were not tested: {blocked} are blocked, {rest - blocked} are "
            "comparable in neither way. Every reason stands under `Claims not tested`. "
            "Only families with a tested claim are listed."
        )
    named = _named(pairs)
    return elements.section("claims", "Claims", text=text,
                            tables=[_families(pairs), _every(pairs, named)])  # fmt: skip


def untested(found: JudgedClaims) -> Section:
    """Return why claims have no verdict, and what would give them one."""
    columns = [("claims", "text", 1), ("n", "integer", 0), ("verdict", "verdict"), ("why", "text", 0),
               ("stack", "text", 3), ("command (first claim)", "code", 2)]  # fmt: skip
    rest = [
        [name, int(n), *row]
        for name, n, *row in claims.untried([pair for pair in found.pairs() if not claims.tried(pair[1])])
    ]
    tables = [elements.table("untested", "Published figures that were not tested, by reason", columns, rest)]
    return elements.section("claims-untested", "Claims not tested", tables=tables, paper=False)


def _families(pairs: list[_Pair]) -> Table:
    outcomes = grouped((claim.family, outcome) for claim, outcome in pairs)
    rows = [[name, len(of), *(claims.counted(of, side) for side in claims.SIDES)]
                              for name, of in outcomes.items()]  # fmt: skip
    columns = ["claims", ("n", "integer", 0), ("as published", "text", 0), ("as judged", "text", 0)]
    return elements.table("claim-families", "Verdicts by family of claims", columns, rows)


def _named(pairs: list[_Pair]) -> dict[str, str]:
    """Machine and stack -> a short name, where there are several."""
    pinned = {claims.where(outcome): outcome.stack.pinned for _, outcome in pairs if outcome.stack}
    return {stack: f"{at} ({'pinned' if pinned[stack] else 'off-pin'})" for at, stack in enumerate(pinned, 1)}


def _every(pairs: list[_Pair], named: dict[str, str]) -> Table:
    several = len(named) > 1
    columns: list[Head] = [
        "claim",
        ("stack", "text", 0),
        ("published", "quantity", 1),
        ("unit", "text", 1),
        ("tolerated", "text", 5),
        ("as published", "quantity", 4),
        ("reproduced as published", "verdict"),
        ("as judged", "quantity", 3),
        ("holds as judged", "verdict"),
        ("why", "text", 2),
    ]
    rows = []
    for claim, outcome in pairs:
        row: list[Cell] = [claim.id, named[claims.where(outcome)] if several else None, outcome.published,
                           outcome.unit, f"{outcome.low:.4g} to {outcome.high:.4g}"]  # fmt: skip
        for side in claims.SIDES:
            found = outcome.side(side)
            row += [elements.quantity(found.measured, found.ci95), wording.CLAIM[side][found.verdict]]
        rows.append([*row, claims.why(outcome)])
    legend = "; ".join(f"{name} is {stack}" if several else stack for stack, name in named.items())
    return elements.table("claims", f"Published figures that were tested: {legend}", columns, rows)


# -- the short of it, which `compare --claims` prints


def short(found: JudgedClaims, *, whole: bool) -> list[Section]:
    """Return the first figures of a study, the others by family, and what was not tried. whole: every claim as well."""
    pairs = _tried(found)
    bundles = [
        Item(
            tone="",
            text=f"{bundle.bundle} (repro {bundle.verb})"
            + (f": no measurement: {bundle.why_not}" if bundle.why_not else ""),
        )
        for bundle in found.bundles
    ]
    text = [] if bundles else ["No bundle: these are the claims that could be tested, and what each needs."]
    every = section(found)
    families = every.model_copy(update={"tables": every.tables[:1], "text": ["-v lists every claim with its reason."]})
    return [
        elements.section("bundles", "Bundles", text=text, items=bundles), *_first(pairs),
        *([every if whole else families] if pairs else []), untested(found),
    ]  # fmt: skip


def _first(pairs: list[_Pair]) -> list[Section]:
    """One line a problem for each stack: as published, both ways here, and against the best torch baseline."""
    known = (pair for family in _FIRST for pair in pairs if pair[0].family == family)
    groups = grouped(((pair[0].family, claims.where(pair[1])), pair) for pair in known)
    return [_known(family, stack, of) for (family, stack), of in groups.items()]


def _known(family: str, stack: str, pairs: list[_Pair]) -> Section:
    columns = [
        "problem",
        ("published", "ratio", 0),
        ("as published here", "verdict"),
        ("as judged", "verdict"),
        ("over best torch", "ratio", 1),
    ]
    rows = [
        [claims.short(claim.problem), outcome.published, *(_words(side, outcome) for side in claims.SIDES),
         outcome.over_best.ratio if outcome.over_best else None]
        for claim, outcome in pairs
    ]  # fmt: skip
    names = grouped((outcome.difference, claims.short(claim.problem)) for claim, outcome in pairs if outcome.difference)
    items = [Item(tone="", text=f"{', '.join(mine)}: {why}.") for why, mine in names.items()]
    table = elements.table(family, "", columns, rows)
    return elements.section(family, f"{_FIRST[family]}: {stack}", items=items, tables=[table])


def _words(side: str, outcome: ClaimOutcome) -> str:
    """`holds 2.31x`: a verdict with its figure."""
    verdict = outcome.side(side)
    word = wording.CLAIM[side][verdict.verdict]
    return word if verdict.measured is None else f"{word} {elements.written('ratio', verdict.measured)}"
