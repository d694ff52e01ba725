"""Whether every row agrees with itself, and the report with the rows: verdicts, reasons, times and their samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from repro.bundle.checks import Check, Skip
from repro.bundle.evidence import Evidence
from repro.records.result import JudgeResult
from repro.records.verdict import Verdict

# Samples are stored with six decimals of a millisecond.
_ROUNDED_MS = 1e-6
# The layout of report.json that `report` reads: a document, whose `verdicts` are those of the rows.
_REPORT_SCHEMA = 3


def _statuses(bundle: Evidence) -> Iterator[str]:
    """A measured row has a result and no error. Every other row has an error and no result."""
    for name, row in bundle.records.items():
        if {row.result is not None, not row.error} != {row.status == "done"}:
            without = "out" * (row.result is None)
            yield f"row {name} is {row.status}, with{without} a result, and its error is {row.error!r}"


def _judged(bundle: Evidence) -> Iterator[tuple[str, Verdict, JudgeResult]]:
    """Yields (row, verdict, the row's result) of every judged solution."""
    for name, row in bundle.records.items():
        if row.judged is not None:
            for entry in row.judged.results:
                yield name, entry, row.judged


def _verdicts(bundle: Evidence) -> Iterator[str]:
    """Verdicts are consistent with their evidence.

    A correct solution has a precision class, a distance and no reason. Every other verdict has a reason. Only correct
    solutions, and those rejected as impossibly fast, have a time.
    """
    judged = list(_judged(bundle))
    if not judged:
        raise Skip("nothing was judged")
    for name, entry, _ in judged:
        label, verdict = f"row {name}, {entry.solution}", entry.verdict
        if verdict == "correct":
            if entry.reasons:
                yield f"{label}: correct, with reasons against it"
            if not entry.precision_class or entry.rel_l2 is None or not math.isfinite(entry.rel_l2):
                yield f"{label}: correct without a precision class and a distance"
        elif not entry.reasons:
            yield f"{label}: {verdict} without a reason"
        elif entry.time_ms and verdict != "rejected":
            yield f"{label}: {verdict}, and timed"
        if verdict != "correct" and entry.speedup and verdict != "rejected":
            yield f"{label}: {verdict}, with a speedup"


def _times(bundle: Evidence) -> list[str]:
    """Every time is the median of its stated number of samples, and every interval holds its value."""
    wrong, timed = [], 0
    for row, entry, result in _judged(bundle):
        baselines = ((name, baseline.time_ms) for name, baseline in result.baselines.items())
        for name, time in ((entry.solution, entry.time_ms), *baselines):
            if time is None:
                continue
            timed += 1
            label, series = f"row {row}, {name}", result.samples_ms.get(name)
            samples = series.gated.device_ms if series else []
            if len(samples) != time.n:
                wrong.append(f"{label}: the time states {time.n} samples, the row has {len(samples)}")
            elif abs(statistics.median(samples) - time.median) > _ROUNDED_MS:
                wrong.append(f"{label}: {time.median} ms is not the median of its samples")
            if not time.ci95[0] <= time.median <= time.ci95[1]:
                wrong.append(f"{label}: the median lies outside its interval")
        for base, ratio in entry.speedup.items():
            if not ratio.ci95[0] <= ratio.ratio <= ratio.ci95[1]:
                wrong.append(f"row {row}, {entry.solution}: the speedup over {base} lies outside its interval")
    if not timed and not wrong:
        raise Skip("nothing was timed")
    return list(dict.fromkeys(wrong))


def _report(bundle: Evidence) -> Iterator[str]:
    """`report.json` has the verdicts and times of the rows."""
    if bundle.report is None:
        raise Skip("no report was drawn")
    version = bundle.report.get("schema_version")
    if version != _REPORT_SCHEMA:
        raise Skip(f"a report of schema {version}, this check knows {_REPORT_SCHEMA}")
    rows = [bundle.records[name] for name in bundle.plan if name in bundle.records]
    counts = {"planned": len(bundle.plan), "finished": sum(row.status == "done" for row in rows)}
    drawn = bundle.report["headline"]
    yield from (f"{name} is {drawn[name]} in the report and {count} in the rows"
                for name, count in counts.items() if drawn[name] != count)  # fmt: skip
    judged = sorted((name, entry.solution, entry.verdict, str(entry.time_ms.median if entry.time_ms else None))
                    for name, entry, _ in _judged(bundle))  # fmt: skip
    shown = sorted((each["row"], each["solution"], each["verdict"], str(each["time_ms"] and float(each["time_ms"])))
                   for each in bundle.report["verdicts"])  # fmt: skip
    if judged != shown:
        yield "verdicts or times are not those of the rows"


ABOUT_RECORDS: dict[str, Check] = {
    "status of rows": _statuses,
    "verdicts": _verdicts,
    "times and samples": _times,
    "report": _report,
}
