"""`repro evaluate NEW --against OLD`: how solutions compare with one that was timed in turns with them.

Both sides of a ratio are of the same blocks, so what slows the GPU for a while slows both. The interval of one load is
that of the judge's speedups; over several loads it also holds what these differ by.
"""

from __future__ import annotations

from collections.abc import Iterable

from repro.analysis import workloads
from repro.analysis.compare import word
from repro.analysis.records import Interval, grouped
from repro.judge.timing import speedups
from repro.records import result, wording
from repro.records.row import Row
from repro.records.verdict import Against, Verdict
from repro.studies import evaluation

NEEDS_GPU = "times need a GPU"


def judged(rows: Iterable[Row]) -> list[Verdict]:
    """Return the verdicts of rows, each new solution's with `against`. The first solution of a row is the old one.

    A row that was not judged gives an `error` with its reason. The verdicts of a solution at several shapes are one.
    """
    return list(by_solution(rows).values())


def by_solution(rows: Iterable[Row]) -> dict[tuple[str, str], Verdict]:
    """Return (row without its shape, solution) -> its verdict, as `judged` does."""
    found = grouped(((row.group, one.solution), one) for row in rows if not row.left_out for one in _of_row(row))
    return {key: workloads.combined(every) for key, every in found.items()}


def _of_row(row: Row) -> list[Verdict]:
    """Return the old solution's verdict, or an only one, and those of new solutions with `against`."""
    old, *new = evaluation.results_of([row])
    compared = (one.model_copy(update={"against": _against(row.judged, old, one)}) for one in new if row.judged)
    return [old, *compared]


def slower(verdict: Verdict, allowed: float) -> bool:
    """Return whether a solution is SLOWER than the old one, its whole interval by more than a share of `allowed`."""
    against = verdict.against
    return bool(against and against.word == "SLOWER" and against.ci95 and against.ci95[1] < 1 - allowed)


def _against(of: result.JudgeResult, old: Verdict, new: Verdict) -> Against:
    if why := _why_not(of, old, new):
        return Against(solution=old.solution, why=why)
    loads = [*of.loads, of]
    ratio = speedups.over_loads([speedups.of_load(load, old.solution, new.solution) for load in loads])
    noise = max(speedups.noise(load.timing.aa) for load in loads)
    return Against(
        solution=old.solution, ratio=ratio.ratio, ci95=ratio.ci95, noise=noise,
        word=word(Interval(ratio.ratio, *ratio.ci95), noise),
    )  # fmt: skip


def _why_not(of: result.JudgeResult, old: Verdict, new: Verdict) -> str:
    """Return why two solutions of a row are not compared, or ""."""
    for verdict in (new, old):
        if verdict.verdict != "correct":
            return f"{verdict.solution} is {wording.word(verdict)}"
        if not verdict.measurement:
            return of.no_measurement or NEEDS_GPU
        if verdict.time_ms is None or verdict.solution not in of.samples_ms:
            return f"{verdict.solution} was not timed"
    return ""
