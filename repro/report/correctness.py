"""The section on right and wrong: verdicts with distances and margins, fixtures, the judge's own test."""

from __future__ import annotations

import math

from repro.records import wording
from repro.records.verdict import Verdict
from repro.report import elements, parity
from repro.report.elements import Cell, Section, Table
from repro.report.sources import Judged, Source, judged

COLUMNS = ("problem", "solution", "bundle", ("verdict", "verdict"), "class",
           ("rel L2", "scientific"), ("max", "scientific"), ("row", "scientific"), ("trials", "integer"),
           ("margin", "quantity"), "allclose 1e-2", "allclose 1e-4", "KernelBench",
           "labels", "why")  # fmt: skip


def section(sources: list[Source]) -> Section:
    """One line a solution; controls among them, and named so."""
    rows = [_line(each) for source in sources for each in judged(source)]
    tables = [elements.table("correctness", "Verdicts, distances to the fp64 reference and margins", COLUMNS, rows)]
    tables += [*_fixtures(sources), *_cases(sources)]
    text = [
        "Distances are the worst over all trials: relative L2, largest element and largest row, each over the "
        "reference's root mean square. The margin is the best cheat's error over the worst honest kernel's, each as a "
        "multiple of its limit. allclose stands beside the verdict for comparison and decides nothing."
    ]
    return elements.section("correctness", "Correctness", text=text if rows else [], tables=tables)


def _line(each: Judged) -> list[Cell]:
    entry, legacy = each.entry, each.entry.legacy
    why = wording.why(entry)
    if each.row.control:
        why = f"a negative control, which must be wrong: {why}"
    return [each.row.problem, each.variant, each.source.letter, wording.word(entry), entry.precision_class,
            *(_worst(entry, name) for name in ("rel_l2", "max", "row")), sum(map(len, entry.distances.values())),
            each.result.margin, *(_yes(legacy.get(f"allclose_{at}")) for at in ("1e-2", "1e-4")),
            parity.kernelbench(entry), ", ".join(entry.labels), why]  # fmt: skip


def _worst(entry: Verdict, name: str) -> float | None:
    """The largest distance of a kind over every trial; None where there is none, or where it has no end."""
    found = [getattr(one, name) for trial in entry.distances.values() for one in trial]
    worst = max(found, default=math.nan)
    return worst if math.isfinite(worst) else None


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _fixtures(sources: list[Source]) -> list[Table]:
    rows = [[f.problem, source.letter, f.margin, f.best_cheat, ", ".join(f.trials), f.build_s,
             f.refused or "no"] for source in sources for f in source.report.fixtures]  # fmt: skip
    columns = ["problem", "bundle", ("margin", "quantity"), "best cheat", "trials", ("built in", "seconds"), "refused"]
    return [elements.table("fixtures", "Fixtures: what separates honest kernels from cheats", columns, rows)] * bool(
        rows
    )


def _cases(sources: list[Source]) -> list[Table]:
    rows = [
        [case.case, source.letter, case.problem, wording.word(case), "; ".join(case.complaints) or "as expected"]
        for source in sources
        for case in source.report.cases
    ]
    columns = ["case", "bundle", "problem", "verdict", ("judged", "verdict")]
    return [elements.table("cases", "What the judge said of every case", columns, rows)] * bool(rows)
