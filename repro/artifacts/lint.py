"""`repro artifacts lint`: what a reviewer of a folder in the published layout must know before trusting its numbers.

Every check is a function of one artifact and what the README says of it, and yields findings. An `error` makes a
published number wrong or impossible to compute again, a `warning` says that it means something else than it seems to,
a `note` is a fact to know. Nothing in the folder is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.artifacts import layout, trace
from repro.artifacts import readme as tables
from repro.artifacts.layout import JSON_FILES, KERNEL, KERNELS, PROFILES, ROUND_FILES, TIMES, TRACE, Artifact
from repro.artifacts.readme import Published

SCHEMA_VERSION = 1
ERROR, WARNING, NOTE = "error", "warning", "note"
# A README rounds to three digits behind the point; beyond WRONG a table is of another measurement.
ROUNDING_MS, EQUAL, WRONG = 0.0006, 0.001, 0.05
# Two times of the same thing from two clocks: nearer than this they are the same number.
SAME_CLOCK = 0.005
# How the published table was timed: triton.testing.do_bench(warmup=500, rep=100), both in milliseconds.
TABLE_WARMUP, TABLE_REPEAT = 500, 100
# The metrics of a profile that the checks below use.
NEEDED = (trace.READ, trace.WRITTEN, trace.RATE)


@dataclass(frozen=True)
class Finding:
    """One line of the report. where: a path below the folder."""

    severity: str
    code: str
    where: str
    what: str
    why: str

    def line(self) -> str:
        """Return the printed form."""
        return f"{self.severity:7} {self.code}  {self.where}: {self.what}. {self.why}"


Check = Callable[[Artifact, Published], Iterator[Finding]]


def _off(value: float, against: float) -> bool:
    return abs(value - against) > max(ROUNDING_MS, EQUAL * against)


def missing_files(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find a missing problem, kernel or trace, or one that is not Python."""
    for name in ("problem.py", *KERNELS.values()):
        text = artifact.text(name)
        where = f"{artifact.name}/{name}"
        if text is None:
            yield Finding(ERROR, "missing_file", where, "missing", "This row cannot be measured again.")
        else:
            try:
                ast.parse(text)
            except (SyntaxError, ValueError) as error:
                yield Finding(ERROR, "not_python", where, str(error), "This row cannot be measured again.")
    if not artifact.rounds:
        why = "No time of the search can be checked."
        yield Finding(WARNING, "missing_trace", f"{artifact.name}/{TRACE}", "holds no round_N folder", why)
    numbers = [r.number for r in artifact.rounds]
    gaps = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
    if gaps:
        why = "The running best over them is not known."
        where = f"{artifact.name}/{TRACE}"
        yield Finding(WARNING, "missing_round", where, f"no round {', '.join(map(str, gaps))}", why)


def transcripts(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find missing files of a round."""
    for each in artifact.rounds:
        missing = [name for name in ROUND_FILES if not (each.path / name).exists()]
        if missing:
            why = "How this round came about cannot be followed."
            yield Finding(WARNING, "missing_transcript", _where(artifact, each), f"no {', '.join(missing)}", why)


def unreadable(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find files that should hold JSON but do not."""
    for each in artifact.rounds:
        for name in JSON_FILES:
            _, why = each.value(name)
            if why and why != "missing":
                yield Finding(ERROR, "unreadable", f"{_where(artifact, each)}/{name}", why, "Its numbers are lost.")


def repairs(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find rounds whose kernel differs from the published reply."""
    found = [r.number for r in artifact.rounds if trace.repaired(r)]
    if found:
        what = f"{KERNEL} is not the reply's kernel in round {', '.join(map(str, found))}"
        why = "It came out of later calls, whose prompts and replies are not published."
        yield Finding(WARNING, "unpublished_repair", f"{artifact.name}/{TRACE}", what, why)


def parents(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find rounds that started from an unpublished kernel."""
    for each in artifact.rounds:
        known, why = trace.parent(artifact, each)
        if known is None and each.text("opt_prompt.txt") is not None:
            consequence = "The line from the input kernel to this one is broken."
            yield Finding(WARNING, "parent_unresolved", _where(artifact, each), why, consequence)


def metrics(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find times and profile metrics that are missing or not finite."""
    for each in artifact.rounds:
        if each.timing.time_ms is None and each.text(TIMES) is not None:
            where = f"{_where(artifact, each)}/{TIMES}"
            yield Finding(ERROR, "no_time", where, each.timing.why, "The round has no time to compare.")
        for which, file in PROFILES.items():
            where = f"{_where(artifact, each)}/{file}"
            profile = each.profile(which)
            if not profile and each.value(file)[1] == "":
                yield Finding(WARNING, "no_metrics", where, "holds no kernel with metrics", "Nothing was profiled.")
            for kernel, values in profile.items():
                bad = sorted(name for name, value in values.items() if layout.single(value) is None)
                absent = sorted(set(NEEDED) - values.keys())
                if bad or absent:
                    parts = [f"not finite: {', '.join(bad)}"] * bool(bad) + [f"absent: {', '.join(absent)}"] * bool(
                        absent
                    )
                    why = "What is derived from them cannot be checked."
                    yield Finding(WARNING, "bad_metrics", where, f"{kernel}: {'; '.join(parts)}", why)


def readme_times(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Compare the README's times with `benchmark_results.json`, for each round and the final kernel."""
    own = trace.times(artifact)
    best = trace.running_best(own)
    for number, value in published.rounds.items():
        where = f"README, {artifact.name} round {number}"
        if number not in own:
            why = "Nothing in the trace shows it."
            yield Finding(WARNING, "readme_times", where, f"{value:.4g} ms, and {TIMES} has no time", why)
        elif _off(value, best[number]) and _off(value, own[number]):
            share = value / best[number] - 1
            severity = ERROR if abs(share) > WRONG else WARNING
            what = f"{value:.4g} ms, the running best of the trace is {best[number]:.4g} ms ({100 * share:+.1f} %)"
            yield Finding(severity, "readme_times", where, what, "The table was not made from the published times.")
    if published.optimized_ms is not None and own and _off(published.optimized_ms, min(own.values())):
        share = published.optimized_ms / min(own.values()) - 1
        what = (
            f"{published.optimized_ms:.4g} ms, the fastest round took {min(own.values()):.4g} ms ({100 * share:+.1f} %)"
        )
        why = "It is another measurement than the trace's."
        severity = ERROR if abs(share) > WRONG else WARNING
        yield Finding(severity, "readme_times", f"README, {artifact.name} optimised", what, why)
    if artifact.rounds and not published.rounds:
        what = "no times of its rounds could be read"
        yield Finding(NOTE, "readme_times", f"README, {artifact.name}", what, "They were not compared.")


def running_best(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Recompute the running best, and compare its round with the README's."""
    own = trace.times(artifact)
    if not own:
        return
    best = trace.best_round(artifact)
    words = " ".join(f"{value:.4g}" for value in trace.running_best(own).values())
    where = f"{artifact.name}/{TRACE}"
    yield Finding(NOTE, "running_best", where, f"{words} ms, best is round {best}", "Recomputed from the trace.")
    if published.rounds:
        lowest = min(published.rounds.values())
        first = min(number for number, value in published.rounds.items() if value == lowest)
        if first != best:
            what = f"the README is at its best from round {first} on, the trace in round {best}"
            yield Finding(WARNING, "best_round", where, what, "The two tell of different winners.")


def shipped(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Check whether the shipped kernel is the fastest round's."""
    text, best = artifact.text(KERNELS["optimized"]), trace.best_round(artifact)
    own = trace.times(artifact)
    if text is None or best is None:
        return
    where = f"{artifact.name}/{KERNELS['optimized']}"
    number, exactly = trace.shipped_round(artifact)
    if number is None:
        why = "No published time is the time of what is shipped."
        yield Finding(ERROR, "shipped_kernel", where, "is no round's kernel", why)
    elif number != best:
        cost = f"{own[number]:.4g} ms" if number in own else "no time"
        what = f"is round {number}'s kernel ({cost}), the fastest is round {best}'s ({own[best]:.4g} ms)"
        yield Finding(WARNING, "shipped_kernel", where, what, "The table's best time is another kernel's.")
    elif not exactly:
        what = f"is round {number}'s kernel in other formatting"
        yield Finding(NOTE, "shipped_kernel", where, what, "The same program, not the same file.")


def protocols(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Check whether all rounds were timed in the same way, unit and clock as the README's table."""
    where = f"{artifact.name}/{TRACE}"
    for name in ("dtype", "device", "warmup", "repeat"):
        values = sorted({str(r.timing.facts[name]) for r in artifact.rounds if r.timing.facts.get(name) is not None})
        if len(values) > 1:
            why = "Times of different rounds cannot be compared."
            yield Finding(ERROR, "protocols_differ", where, f"{name} is {' and '.join(values)}", why)
    used = {(r.timing.facts.get("warmup"), r.timing.facts.get("repeat")) for r in artifact.rounds if r.timing.facts}
    other = sorted(str(pair) for pair in used if pair != (TABLE_WARMUP, TABLE_REPEAT) and None not in pair)
    if other:
        what = f"(warmup, repeat) is {', '.join(other)}, milliseconds and not counts"
        why = f"The final table is timed with ({TABLE_WARMUP}, {TABLE_REPEAT}): the two do not have to agree."
        yield Finding(NOTE, "warmup_repeat", where, what, why)
    clocked = {r.number: d for r in artifact.rounds if (d := trace.duration_ms(r, "optimized")) is not None}
    own = trace.times(artifact)
    for number, value in published.rounds.items():
        named = [n for n, d in clocked.items() if abs(d / value - 1) <= SAME_CLOCK]
        if number in own and _off(value, trace.running_best(own)[number]) and named:
            what = f"{value:.4g} ms is the profiled duration of round {named[0]}, not a benchmarked time"
            why = "A profiler locks the clock low: such times are too long, and no other row's are taken so."
            yield Finding(ERROR, "profiler_time", f"README, {artifact.name} round {number}", what, why)
    first = next((d for r in artifact.rounds if (d := trace.duration_ms(r, "input")) is not None), None)
    if first and published.input_ms and own and abs(first / published.input_ms - 1) <= SAME_CLOCK:
        what = f"the input kernel's {published.input_ms:.4g} ms is its profiled duration"
        why = "A ratio to it mixes two clocks unless the other time is a profiler's too."
        yield Finding(WARNING, "profiler_time", f"README, {artifact.name} input", what, why)


def profile_dtype(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Compare the dtype of every profile, inferred from its bytes, with the dtype that was timed."""
    needed = trace.work(artifact)
    if needed is None:
        if any(r.profile(which) for r in artifact.rounds for which in PROFILES):
            what = "the traffic of this problem at these sizes is not known"
            yield Finding(NOTE, "profile_dtype", artifact.name, what, "The dtype of its profiles was not inferred.")
        return
    for which in PROFILES:
        wrong: dict[str, list[int]] = {}
        for each in artifact.rounds:
            timed = str(each.timing.facts.get("dtype") or "").removeprefix("torch.")
            found = trace.profile_dtype(each, which, needed)
            if found is not None and timed and found != timed:
                wrong.setdefault(f"{found}, timed in {timed}", []).append(each.number)
        for words, numbers in wrong.items():
            what = f"the {which} profile of round {', '.join(map(str, numbers))} moved the bytes of {words}"
            why = "Its bandwidth, cache hits and occupancy are of another run than the one that was timed."
            yield Finding(WARNING, "profile_dtype", f"{artifact.name}/{TRACE}", what, why)


def baselines(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Note that the trace times one kernel without a comparison."""
    if artifact.rounds:
        what = f"{TIMES} holds the round's kernel and no baseline"
        why = "No speedup can be computed from the trace: repro benchmark measures it."
        yield Finding(NOTE, "no_baseline", f"{artifact.name}/{TRACE}", what, why)


CHECKS: tuple[Check, ...] = (
    missing_files, unreadable, metrics, readme_times, protocols, shipped, running_best, profile_dtype, parents,
    repairs, transcripts, baselines,
)  # fmt: skip


def _where(artifact: Artifact, found: layout.Round) -> str:
    return f"{artifact.name}/{TRACE}/{found.path.name}"


def lint(root: Path, names: list[str] | None = None) -> dict[str, Any]:
    """Run every check on every artifact below `root`.

    Return {"findings": [...], "artifacts": [summaries], "errors": count}. Raises UsageError if there is no artifact.
    """
    found = layout.find(root, names)
    published = tables.read(layout.readme(root), {a.number for a in found if a.number is not None})
    findings = [
        finding
        for artifact in found
        for check in CHECKS
        for finding in check(artifact, published[artifact.number or 0])
    ]
    order = (ERROR, WARNING, NOTE)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": root.resolve().name,
        "artifacts": [trace.summary(artifact, published[artifact.number or 0]) for artifact in found],
        "findings": [asdict(finding) for finding in findings],
        "errors": sum(finding.severity == ERROR for finding in findings),
        "lines": [finding.line() for finding in findings],
    }
