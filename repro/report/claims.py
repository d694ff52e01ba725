"""Claims and their verdicts on a terminal, drawn from what `replication` found."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from repro import replication
from repro.screen import BAD, GOOD, OPEN, SIGNS, Column, Screen

Pair = tuple[dict[str, Any], dict[str, Any]]
TONES = {replication.REPRODUCED: GOOD, replication.DIFFERS: BAD, replication.AMBIGUOUS: OPEN}
NOTES = (
    "REPRODUCED: the measured 95 % interval lies within the tolerance that the claim declares. DIFFERS: outside. "
    "AMBIGUOUS: across an edge, or bundles of one stack disagree. NOT-COMPARABLE: measured otherwise, or an absolute "
    "figure of another machine. BLOCKED: needs something that this run did not have.",
    "Times compare on the published kind of machine alone; ratios compare between machines, and the note says so.",
    "Every claim with its tolerance, its reason, its source and the command that tests it: artifacts/claims.toml.",
)


def draw(found: dict[str, Any], screen: Screen) -> None:
    """What was tried claim by claim, the rest by reason, and the last line."""
    if not found["bundles"]:
        screen.line("No bundle: these are the claims that could be tested, and what each needs.")
    for bundle in found["bundles"]:
        why = f": no measurement: {bundle['why_not']}" if bundle["why_not"] else ""
        screen.item(f"{bundle['bundle']} (repro {bundle['verb']}){why}")
    pairs: list[Pair] = [(claim, outcome) for claim in found["claims"] for outcome in claim["outcomes"]]
    tried = [pair for pair in pairs if pair[1]["verdict"] in replication.TRIED]
    rest = [pair for pair in pairs if pair[1]["verdict"] not in replication.TRIED]
    screen.line()
    columns = (Column("claim", least=20), Column("published", 1, number=True), Column("measured", number=True),
               Column("verdict", whole=True), Column("why", 2, least=30), Column("stack", 3),
               Column("notes", 4))  # fmt: skip
    screen.table(columns, [_line(*pair) for pair in tried], "Tried")
    grouped = (Column("claims", least=24), Column("n", number=True), Column("verdict", whole=True),
               Column("why", least=30), Column("stack", 2), Column("command of the first", 3, least=40))  # fmt: skip
    screen.table(grouped, _grouped(rest), "Not tried")
    if screen.verbose:
        for note in NOTES:
            screen.item(note)
    counts = [f"{n} {verdict}" for verdict, n in found["counts"].items() if n]
    screen.last("claims: " + (", ".join(counts) or "none"))


def _figure(value: float, unit: str) -> str:
    return f"{value:.4g}{unit}" if unit == "x" else f"{value:.4g} {unit}"


def _measured(claim: dict[str, Any], outcome: dict[str, Any]) -> str | None:
    if outcome["measured"] is None:
        return None
    low, high = outcome["ci95"]
    return f"{_figure(outcome['measured'], claim['unit'])} [{low:.4g}, {high:.4g}]"


def _line(claim: dict[str, Any], outcome: dict[str, Any]) -> list[Any]:
    stack = f"{outcome['machine']}, {outcome['stack']['label']}"
    tone = TONES[outcome["verdict"]]
    verdict = Text(f"{SIGNS[tone]} {outcome['verdict']}", tone)
    return [claim["id"], _figure(claim["value"], claim["unit"]), _measured(claim, outcome), verdict,
            outcome["reason"], stack, "; ".join(outcome["notes"])]  # fmt: skip


def _grouped(pairs: list[Pair]) -> list[list[Any]]:
    """One line for the claims of a family that share verdict, reason and stack: there are many, with few reasons."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for claim, outcome in pairs:
        stack = outcome["stack"]["label"] if outcome["stack"] else ""
        family = claim["id"].partition("/")[0]
        groups.setdefault((family, outcome["verdict"], outcome["reason"], stack), []).append(claim)
    return [
        [family, str(len(claims)), verdict, reason, stack, claims[0]["command"] or "none in this release"]
        for (family, verdict, reason, stack), claims in groups.items()
    ]
