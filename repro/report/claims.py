"""Claims and their verdicts on a terminal, drawn from what `analysis.claims` found."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from repro.analysis import claims
from repro.records import wording
from repro.records.claim import ClaimOutcome, JudgedClaim, JudgedClaims
from repro.system.screen import BAD, GOOD, OPEN, SIGNS, Column, Screen

Pair = tuple[JudgedClaim, ClaimOutcome]
TONES = {claims.REPRODUCED: GOOD, claims.DIFFERS: BAD, claims.AMBIGUOUS: OPEN}
# The figures that a study is known for, and their heading. The others are counted by family; -v lists them.
FIRST = {
    "artifact-speedup": "Speedups over torch.compile",
    "agent-speedup-baseline": "Agent over eager",
    "agent-speedup-with-kb": "Agent with knowledge over eager",
}
EVERY = (Column("claim", least=20), Column("published", 1, number=True), Column("as published here", number=True),
         Column("as judged", number=True), Column("why", 2, least=30), Column("stack", 3),
         Column("notes", 4))  # fmt: skip
NOTES = (
    "Reproduced as published: by the published way of measuring, which verifies nothing. Holds as judged: the kernel "
    "is correct, and its figure by the judge's clock lies within the tolerance that the claim declares. Unclear: "
    "across an edge of it, or bundles of one stack disagree.",
    "Ratios compare between machines, absolute figures on the published kind of machine alone.",
    "Every claim with its tolerance, its reason, its source and the command that tests it: artifacts/claims.toml.",
)


def draw(found: JudgedClaims, screen: Screen, report: Path | None = None) -> None:
    """Draw the first figures of a study, the others by family, with -v every claim, and the last line."""
    if not found.bundles:
        screen.line("No bundle: these are the claims that could be tested, and what each needs.")
    for bundle in found.bundles:
        why = f": no measurement: {bundle.why_not}" if bundle.why_not else ""
        screen.item(f"{bundle.bundle} (repro {bundle.verb}){why}")
    screen.line()
    pairs = found.pairs()
    tried = [pair for pair in pairs if claims.tried(pair[1])]
    for family, title in FIRST.items():
        _first([pair for pair in tried if pair[0].family == family], title, screen)
    _families(tried, screen)
    if screen.verbose:
        screen.table(EVERY, [_line(*pair) for pair in tried], "Every claim that was tried")
    _untried([pair for pair in pairs if not claims.tried(pair[1])], screen)
    if screen.verbose:
        for note in NOTES:
            screen.item(note)
    elif tried:
        screen.line("-v lists every claim with its reason.", "dim")
    screen.last(f"claims: {claims.told(found.counts)}", report=report)


def verdict(side: str, outcome: ClaimOutcome, *, exact: bool = False) -> Text:
    """Return one of the two figures with the sign and colour of its verdict, or the verdict's word without a figure."""
    found = outcome.side(side)
    tone = TONES.get(found.verdict, "")
    shown = wording.CLAIM[side][found.verdict]
    if found.measured is not None and found.ci95 is not None:
        low, high = found.ci95
        shown = f"{_figure(found.measured, outcome.unit)}" + (f" [{low:.4g}, {high:.4g}]" if exact else "")
    return Text(f"{SIGNS[tone]} {shown}" if tone else shown, tone or "dim")


def _figure(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    return f"{value:#.3g}x" if unit == "x" else f"{value:.4g} {unit}"


def _first(pairs: list[Pair], title: str, screen: Screen) -> None:
    """Draw one line a problem for each stack: as published, both ways here, and against the best torch baseline."""
    columns = (Column("problem", least=12), Column("published", number=True), Column("as published here", number=True),
               Column("as judged", number=True), Column("over best torch", number=True))  # fmt: skip
    stacks: dict[str, list[Pair]] = {}
    for pair in pairs:
        stacks.setdefault(claims.where(pair[1]), []).append(pair)
    for stack, of in stacks.items():
        rows = [[claims.short(claim.problem), _figure(outcome.published, outcome.unit),
                 *(verdict(side, outcome) for side in claims.SIDES),
                 _figure(outcome.over_best.ratio, "x") if outcome.over_best else None]
                for claim, outcome in of]  # fmt: skip
        screen.table(columns, rows, f"{title}: {stack}")
        told: dict[str, list[str]] = {}
        for claim, outcome in of:
            if outcome.difference:
                told.setdefault(outcome.difference, []).append(claims.short(claim.problem))
        for why, names in told.items():
            screen.item(f"{', '.join(names)}: {why}.")
        screen.line()


def _families(pairs: list[Pair], screen: Screen) -> None:
    """Draw how many claims of each family have which verdicts."""
    of: dict[str, list[ClaimOutcome]] = {}
    for claim, outcome in pairs:
        of.setdefault(claim.family, []).append(outcome)
    columns = (Column("claims", whole=True), Column("n", number=True), Column("as published", least=16),
               Column("as judged", least=16))  # fmt: skip
    rows = [
        [name, str(len(found)), *(claims.counted(found, side) for side in claims.SIDES)] for name, found in of.items()
    ]
    screen.table(columns, rows, "Tried, by family")


def _untried(pairs: list[Pair], screen: Screen) -> None:
    columns = (Column("n", number=True), Column("verdict", whole=True), Column("why", least=30),
               Column("claims", 1, least=24), Column("stack", 3),
               Column("command (first claim)", 2, least=40))  # fmt: skip
    rows = [
        [n, verdict, why, families, stack, command]
        for families, n, verdict, why, stack, command in claims.untried(pairs)
    ]
    screen.table(columns, rows, "Not tried")


def _line(claim: JudgedClaim, outcome: ClaimOutcome) -> list[Text | str | None]:
    return [
        claim.id, _figure(outcome.published, outcome.unit),
        *(verdict(side, outcome, exact=True) for side in claims.SIDES),
        claims.why(outcome), claims.where(outcome), "; ".join(outcome.notes),
    ]  # fmt: skip
