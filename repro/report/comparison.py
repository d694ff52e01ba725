"""Sections of a comparison of two bundles: what `analysis.compare` found."""

from __future__ import annotations

from collections import Counter

from repro.analysis import claims
from repro.records import wording
from repro.records.comparison import (
    ComparedMachines,
    ComparedRow,
    ComparedSpeedup,
    ComparedTime,
    Comparison,
    OnlyIn,
)
from repro.report import elements
from repro.report.elements import Item, Section, Table

_NOTES = (
    "B/A of a speedup divides two speedups, each measured within its own run. SLOWER says that the speedup fell: the "
    "kernel is slower, or the baseline faster. B/A of a time under 1 is FASTER.",
    "Intervals are 95 %. FASTER and SLOWER lie beyond 1 by more than 1 % and by more than both A/A controls; SAME lies "
    "within that; everything else is AMBIGUOUS.",
)


def sections(compared: Comparison, *, whole: bool) -> list[Section]:
    """Return the comparison, and with `whole` the machines and how to read it."""
    found = [_bundles(compared), _rows(compared)]
    if whole:
        found += [_machines(pair) for pair in compared.fingerprints]
        found.append(elements.section("reading", "How to read this", text=_NOTES))
    return found


def headline(compared: Comparison) -> list[str]:
    """Return the parts of the last line."""
    changes = len(compared.verdict_changes)
    words = Counter[str](speedup.word for row in compared.rows for speedup in row.speedup.values())
    rows = elements.count(len({row.row for row in compared.rows}), "row")
    return [
        f"{rows} of {len(compared.rows)} variants compared",
        f"{changes or 'no'} verdict{'' if changes == 1 else 's'} changed",
        f"speedups: {wording.counts(words)}" if words else "no speedup compared",
    ]


def _bundles(compared: Comparison) -> Section:
    items = []
    for side, bundle in (("A", compared.a), ("B", compared.b)):
        stacks = "; ".join(bundle.stacks) or "nothing measured"
        machines = "".join(f"; {machine}" for machine in bundle.machines.values())
        run = f"repro {bundle.verb}, started {bundle.started}, {bundle.status}"
        text = f"{side}: {bundle.bundle}, {run}, {stacks}{machines}"
        items.append(Item(tone="", text=text))
    items += [Item(tone="open", text=caveat) for caveat in compared.caveats]
    return elements.section("bundles", "Bundles", items=items)


def _rows(compared: Comparison) -> Section:
    reasons = Counter(row.time_reason for row in compared.rows if row.time_reason)
    items = [
        Item(tone="", text=f"times not compared, {n} of {len(compared.rows)} variants: {why}")
        for why, n in reasons.items()
    ]
    return elements.section("rows", "Rows", items=items, tables=[
        _changes(compared), _speedups(compared.rows), _times(compared.rows), _only("A", "B", compared.only_a),
        _only("B", "A", compared.only_b),
    ])  # fmt: skip


def _changes(compared: Comparison) -> Table:
    columns = ["row", ("variant", "text", 2), ("A", "text", 0), ("B", "text", 0), ("why", "text", 1)]
    rows = [
        [claims.short(change.row), change.variant, *change.verdict, "; ".join(filter(None, change.why))]
        for change in compared.verdict_changes
    ]
    return elements.table("changes", "Verdicts that changed", columns, rows)


def _only(side: str, other: str, only: list[OnlyIn]) -> Table:
    rows = [[claims.short(each.row), each.variant, each.reason] for each in only]
    columns = ["row", ("variant", "text", 2), (other, "text", 1)]
    return elements.table(f"only-{side}", f"Only in {side}", columns, rows)


def _variant(row: ComparedRow) -> str:
    """The variant, which has a star where it had not converged."""
    return row.variant + ("" if all(row.converged) else " *")


def _both(of: ComparedSpeedup | ComparedTime) -> str:
    """What A and B measured, in one cell: a narrow terminal shows both or neither. Their intervals are in B/A's."""
    return " → ".join(f"{each.value:.4g}" for each in (of.a, of.b))


def _speedups(compared: list[ComparedRow]) -> Table:
    rows = []
    for row in compared:
        for over, speedup in row.speedup.items():
            best = speedup.baseline
            if best and best[0] == best[1] and best[0] in row.speedup:
                continue  # that baseline has a line of its own
            which = (best[0] if best[0] == best[1] else f"{best[0]}, in B {best[1]}") if best else None
            rows.append([claims.short(row.row), _variant(row), "best" if best else over, which, _both(speedup),
                         elements.quantity(speedup.ratio, speedup.ci95), speedup.word])  # fmt: skip
    columns = ["row", ("variant", "text", 0), ("over", "text", 0), ("baseline", "text", 1),
               ("A → B, x", "text", 2), ("B/A", "quantity", 0),
               ("word", "verdict")]  # fmt: skip
    return elements.table("speedups", "Speedups", columns, rows)


def _times(compared: list[ComparedRow]) -> Table:
    rows = [
        [claims.short(row.row), _variant(row), _both(time), elements.quantity(time.ratio, time.ci95), time.word]
        for row in compared
        if (time := row.time_ms) is not None
    ]
    columns = ["row", ("variant", "text", 0), ("A → B, ms", "text", 1),
               ("B/A", "quantity", 0), ("word", "verdict")]  # fmt: skip
    return elements.table("times", "Times", columns, rows)


def _machines(pair: ComparedMachines) -> Section:
    """Differences by class; dynamic values in one line, because they differ between any two runs."""
    rows = [[d.name, d.klass + (" !" if d.hard else ""), str(d.a), str(d.b)]
                              for d in pair.differences if d.klass != "dynamic"]  # fmt: skip
    text = [] if rows else ["Nothing but the machine's state differs."]
    dynamic = [f"{d.name} {d.a} → {d.b}" for d in pair.differences if d.klass == "dynamic"]
    text += [f"State when taken: {', '.join(dynamic)}."] if dynamic else []
    columns = ["field", "class", ("A", "text", 0), ("B", "text", 0)]
    return elements.tabled("machines", f"Fingerprints {pair.a} (A) and {pair.b} (B)", "", columns, rows, text=text)
