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
# The figures that a study is known for. The others are counted by family; -v lists them.
_FIRST = ("artifact-speedup", "agent-speedup-baseline", "agent-speedup-with-kb")


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
        blocked = found.counts["as_judged"]["BLOCKED"]
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
    groups = grouped(
        ((wording.CLAIM["as_judged"][one.as_judged.verdict], one.as_judged.reason, claims.where(one)), claim)
        for claim, one in found.pairs() if not claims.tried(one)
    )  # fmt: skip
    rest = [[", ".join(dict.fromkeys(each.family for each in of)), len(of), *of_group, of[0].command]
            for of_group, of in groups.items()]  # fmt: skip
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
        ("unit", "text", 6),
        ("tolerated", "text", 5),
        ("as published", "quantity", 4),
        ("reproduced as published", "verdict"),
        ("as judged", "quantity", 1),
        ("holds as judged", "verdict"),
        ("over best torch", "ratio", 6),
        ("why", "text", 2),
    ]
    rows = []
    for claim, outcome in pairs:
        row: list[Cell] = [claim.id, named[claims.where(outcome)] if several else None, outcome.published,
                           outcome.unit, f"{outcome.low:.4g} to {outcome.high:.4g}"]  # fmt: skip
        for side in claims.SIDES:
            found = outcome.side(side)
            row += [elements.quantity(found.measured, found.ci95), wording.CLAIM[side][found.verdict]]
        rows.append([*row, elements.speedup(outcome.over_best), claims.why(outcome)])
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
    first = [pair for pair in pairs if pair[0].family in _FIRST]
    families = elements.section(
        "claims", "Claims", text=["-v lists every claim."], tables=[_every(first, _named(first)), _families(pairs)]
    )
    bundle_section = elements.section("bundles", "Bundles", text=text, items=bundles)
    return [bundle_section, *([section(found) if whole else families] if pairs else []), untested(found)]
