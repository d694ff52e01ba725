"""A comparison of two bundles on a terminal, drawn from what `compare` found."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

from repro.records.comparison import (
    ComparedMachines,
    ComparedRow,
    ComparedSpeedup,
    ComparedTime,
    Comparison,
    Figure,
    VerdictChange,
)
from repro.system.screen import BAD, GOOD, OPEN, Column, Screen

NOTES = (
    "B/A of a speedup divides two speedups, each measured within its own run. SLOWER says that the speedup fell: the "
    "kernel is slower, or the baseline faster. B/A of a time under 1 is FASTER.",
    "Intervals are 95 %. FASTER and SLOWER lie beyond 1 by more than 1 % and by more than both A/A controls; SAME lies "
    "within that; everything else is AMBIGUOUS.",
)
TONES = {"FASTER": GOOD, "SLOWER": BAD, "SAME": "", "AMBIGUOUS": OPEN}


def draw(found: Comparison, screen: Screen) -> None:
    """The whole comparison, and the last line."""
    screen.title(f"A: {found.a.bundle}, B: {found.b.bundle}")
    for side, each in (("A", found.a), ("B", found.b)):
        stacks = "; ".join(each.stacks) or "nothing measured"
        screen.item(f"repro {each.verb}, started {each.started}, {each.status}, {stacks}", side)
        for machine in each.machines.values():
            screen.item(machine, " ")
    for caveat in found.caveats:
        screen.item(caveat, "!")
    screen.line()
    _changes(found.verdict_changes, screen)
    _speedups(found.rows, screen)
    _times(found.rows, screen)
    for side, other, only in (("A", "B", found.only_a), ("B", "A", found.only_b)):
        rows = [[_cut(o.row, screen), o.variant, o.reason] for o in only]
        columns = (Column("row"), Column("variant", 2), Column(other, 1))
        screen.table(columns, rows, f"Only in {side}")
    neither = [[o.row, o.a, o.b] for o in found.unmeasured]
    screen.table((Column("row"), Column("A", 1), Column("B", 2)), neither, "Measured in neither")
    if screen.verbose:
        for pair in found.fingerprints:
            _machines(pair, screen)
        for note in NOTES:
            screen.item(note)
    screen.last(*_verdict(found))


def _verdict(found: Comparison) -> list[str]:
    changes = len(found.verdict_changes)
    words = Counter(each.word for row in found.rows for each in row.speedup.values())
    rows = len({each.row for each in found.rows})
    counted = f"{rows} row{'' if rows == 1 else 's'} of {len(found.rows)} variants compared"
    parts = [counted, f"{changes or 'no'} verdict{'' if changes == 1 else 's'} changed"]
    counts = ", ".join(f"{n} {name}" for name, n in words.items())
    return [*parts, f"speedups: {counts}" if counts else "no speedup compared"]


def _word(word: str | None) -> Text | None:
    return Text(word, TONES.get(word, "")) if word else None


def _changes(changes: list[VerdictChange], screen: Screen) -> None:
    if not changes:
        return
    columns = (Column("row"), Column("variant", 2), Column("A", whole=True), Column("B", whole=True), Column("why", 1))
    rows = [[c.row, c.variant, *c.verdict, "; ".join(filter(None, c.why))] for c in changes]
    screen.table(columns, rows, "Verdicts that changed")


def _cut(name: str, screen: Screen) -> str:
    """A name that fits beside the figures. It is cut at its end, for it begins with what identifies it."""
    most = 17 if screen.width < 120 else 21 if screen.width < 160 else 40
    return name if len(name) <= most else name[: most - 1] + "…"


def _names(row: ComparedRow, screen: Screen) -> tuple[str, str]:
    """The row and its variant, which has a star where it had not converged."""
    return _cut(row.row, screen), _cut(row.variant, screen) + ("" if all(row.converged) else " *")


def _interval(found: Figure | ComparedSpeedup | ComparedTime, unit: str = "") -> str | None:
    value = found.value if isinstance(found, Figure) else found.ratio
    if value is None or found.ci95 is None:
        return None
    low, high = found.ci95
    return f"{value:.4g}{unit} [{low:.4g}, {high:.4g}]"


def _speedups(rows: list[ComparedRow], screen: Screen) -> None:
    lines = []
    for row in rows:
        for over, found in row.speedup.items():
            best = found.baseline
            if best and best[0] == best[1] and best[0] in row.speedup:
                continue  # that baseline has a line of its own
            which = (best[0] if best[0] == best[1] else f"{best[0]}, in B {best[1]}") if best else None
            figures = _interval(found.a, "x"), _interval(found.b, "x"), _interval(found)
            lines.append([*_names(row, screen), "best" if best else over, which, *figures, _word(found.word)])
    columns = (Column("row", least=17), Column("variant", least=14), Column("over", whole=True), Column("baseline", 1),
               Column("A", 3, number=True), Column("B", 2, number=True), Column("B/A", number=True),
               Column("word", whole=True))  # fmt: skip
    screen.table(columns, lines, "Speedups")


def _times(rows: list[ComparedRow], screen: Screen) -> None:
    lines = [
        [*_names(row, screen), _interval(time.a), _interval(time.b), _interval(time), _word(time.word)]
        for row in rows
        if (time := row.time_ms) is not None
    ]
    columns = (Column("row", least=17), Column("variant", least=14), Column("A ms", 1, number=True),
               Column("B ms", 1, number=True), Column("B/A", number=True), Column("word", whole=True))  # fmt: skip
    screen.table(columns, lines, "Times")
    reasons = Counter(row.time_reason for row in rows if row.time_reason)
    for reason, count in reasons.items():
        screen.item(f"times not compared, {count} of {len(rows)} variants: {reason}")
    if reasons:
        screen.line()


def _machines(pair: ComparedMachines, screen: Screen) -> None:
    """Differences by class; dynamic values in one line, because they differ between any two runs."""
    told = [d for d in pair.differences if d["class"] != "dynamic"]
    rows = [[d["name"], d["class"] + (" !" if d["hard"] else ""), d["a"], d["b"]] for d in told]
    columns = (Column("field"), Column("class", 1, whole=True), Column("A"), Column("B"))
    screen.table(columns, rows, f"Fingerprints {pair.a} (A) and {pair.b} (B)")
    if not rows:
        screen.line("Nothing but the machine's state differs.")
    dynamic = [f"{d['name']} {d['a']} → {d['b']}" for d in pair.differences if d["class"] == "dynamic"]
    if dynamic:
        screen.line(f"State when taken: {', '.join(dynamic)}.")
