"""`repro evaluate NEW --against OLD`: how solutions compare with one that was timed in turns with them, in one session.

Both sides of a ratio are of the same blocks, so what slows the GPU for a while slows both. The interval is that of the
judge's speedups, with what two processes of the same code differ by.
"""

from __future__ import annotations

from collections.abc import Iterable

from repro.analysis.compare import word
from repro.analysis.records import interval
from repro.judge.timing import speedups
from repro.judge.timing.sampling import Sample, Series
from repro.records import result, wording
from repro.records.row import Row
from repro.records.verdict import Against, Verdict
from repro.studies import evaluation

NEEDS_GPU = "times need a GPU"


def judged(rows: Iterable[Row]) -> list[Verdict]:
    """Return the verdicts of rows, each new solution's with `against`. The first solution of a row is the old one.

    A row that was not judged gives an `error` with its reason.
    """
    found: list[Verdict] = []
    for row in rows:
        old, *new = evaluation.results_of([row])
        found.append(old)
        if row.judged:
            found += [one.model_copy(update={"against": _against(row.judged, old, one)}) for one in new]
    return found


def slower(verdict: Verdict, allowed: float) -> bool:
    """Return whether a solution is SLOWER than the old one, its whole interval by more than a share of `allowed`."""
    against = verdict.against
    return bool(against and against.word == "SLOWER" and against.ci95 and against.ci95[1] < 1 - allowed)


def _against(of: result.JudgeResult, old: Verdict, new: Verdict) -> Against:
    if why := _why_not(of, old, new):
        return Against(solution=old.solution, why=why)
    base, ours = (_series(of, verdict.solution) for verdict in (old, new))
    terms = [speedups.host_term(series, trusted=False) for series in (base, ours)]
    ratio = speedups.speedup(base.device_ms, ours.device_ms, terms, trusted=False)
    noise, found = speedups.noise(of.timing.aa), interval(ratio)
    assert found is not None
    return Against(
        solution=old.solution, ratio=ratio.ratio, ci95=ratio.ci95, noise=noise, word=word(found, noise)
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


def _series(of: result.JudgeResult, name: str) -> Series:
    """Return a solution's samples as the judge had them, as far as a ratio needs them."""
    hidden = name not in of.timing.launches_not_hidden
    gated = of.samples_ms[name].gated
    return Series(gated=[Sample(ms, 0.0, 0.0, 0.0, hidden=hidden) for ms in gated.device_ms])
