"""`repro artifacts lint`: what a reviewer of a folder in the published layout must know before trusting its numbers.

Every check is a function of one artifact and what the README says of it, and yields findings. An `error` makes a
published number wrong or impossible to compute again, a `warning` says that it means something else than it seems to,
a `note` is a fact to know. Nothing in the folder is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.artifacts import layout, trace
from repro.artifacts import readme as tables
from repro.artifacts.layout import JSON_FILES, KERNEL, KERNELS, PROFILES, ROUND_FILES, TIMES, TRACE, Artifact
from repro.artifacts.readme import Metric, Published, Readme, Unread

SCHEMA_VERSION = 2
ERROR, WARNING, NOTE = "error", "warning", "note"
# A README rounds to three digits behind the point; beyond WRONG a table is of another measurement.
ROUNDING_MS, EQUAL, WRONG = 0.0006, 0.001, 0.05
# Two times of the same thing from two clocks: nearer than this they are the same number.
SAME_CLOCK = 0.005
# Lines of a README with figures that were not read: more are counted only.
SHOWN_LINES = 12
# How the published table was timed: triton.testing.do_bench(warmup=500, rep=100), both in milliseconds.
TABLE_WARMUP, TABLE_REPEAT = 500, 100
# The metrics of a profile that the checks below use.
NEEDED = (trace.READ, trace.WRITTEN, trace.RATE)


@dataclass(frozen=True)
class Finding:
    """One line of the report. where: a path below the folder, or the README's part about an artifact."""

    severity: str
    code: str
    where: str
    what: str
    why: str


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
        told = "holds no round_N folder" if (artifact.path / TRACE).is_dir() else "is missing"
        yield Finding(WARNING, "missing_trace", f"{artifact.name}/{TRACE}", told, why)
    numbers = [r.number for r in artifact.rounds]
    gaps = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
    if gaps:
        why = "The running best over them is not known."
        where = f"{artifact.name}/{TRACE}"
        yield Finding(WARNING, "missing_round", where, f"no round {_numbers(gaps)}", why)


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
        what = f"{KERNEL} is not the reply's kernel in round {_numbers(found)}"
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
    """Compare the README's times with the trace's: of each round, of the final kernel and of the input kernel."""
    own = trace.times(artifact)
    best, where, clocked = trace.running_best(own), f"README, {artifact.name}", _profiled(artifact, published)
    told: list[float] = []
    for name, theirs, ours in (("running best", published.rounds, best), ("time", published.own, own)):
        if without := sorted(theirs.keys() - own.keys()):
            what = f"{name} of round {_numbers(without)}, which has no time in {TIMES}"
            yield Finding(WARNING, "readme_times", where, what, "Nothing in the trace shows it.")
        off = [(n, v, ours[n]) for n, v in theirs.items() if n in own and _off(v, ours[n]) and _off(v, own[n])]
        told += [value for _, value, _ in off]
        for severity in (ERROR, WARNING):
            some = [each for each in off if each[0] not in clocked and _severity(*each[1:]) == severity]
            if some:
                why = "The README was not made from the published times."
                yield Finding(severity, "readme_times", where, f"{name} of {_runs(some)}", why)
    yield from _kernel_times(artifact, published, told)


def _kernel_times(artifact: Artifact, published: Published, told: list[float]) -> Iterator[Finding]:
    """Compare the README's times of the two kernels. told: README times of rounds that have their finding."""
    own, where = trace.times(artifact), f"README, {artifact.name}"
    fastest, given = min(own.values(), default=None), published.ms("optimized")
    if fastest is not None and given is not None and _off(given, fastest) and all(_off(given, v) for v in told):
        what = f"the optimised kernel takes {_pair(given, fastest, 'the fastest round')}"
        why = "It is another measurement than the trace's."
        yield Finding(_severity(given, fastest), "readme_times", where, what, why)
    given, prompted = published.ms("input"), trace.input_ms(artifact)
    if given and prompted and _off(given, prompted) and not _profiled_input(artifact, published):
        what = f"the input kernel takes {_pair(given, prompted, 'the prompts')}"
        why = "It is another measurement than the trace's."
        yield Finding(_severity(given, prompted), "readme_times", where, what, why)
    for of, values in published.times.items():
        if others := sorted({v for v in values if _off(v, values[0])}):
            what = f"{of} is {' and '.join(f'{v:.4g}' for v in [values[0], *others])} ms"
            yield Finding(WARNING, "readme_times", where, what, "The README gives one time in two ways.")


def profiler_times(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find times in the README that are durations of profiles."""
    clocked, best = _profiled(artifact, published), trace.running_best(trace.times(artifact))
    parts = [_runs([(n, published.rounds[n], best[n]) for n in clocked])] if clocked else []
    durations = {r.number: d for r in artifact.rounds if (d := trace.duration_ms(r, "optimized")) is not None}
    named = [f"round {n} {durations[n]:.4g}" for n in sorted(set(clocked.values()))]
    if _profiled_input(artifact, published):
        given, prompted = published.times["input"][0], trace.input_ms(artifact)
        words = _pair(given, prompted, "the prompts") if prompted else f"{given:.4g} ms"
        parts.append(f"the input kernel takes {words}")
        named.insert(0, f"input {trace.duration_ms(artifact.rounds[0], 'input'):.4g}")
    if parts:
        what = f"times are profiled durations ({', '.join(named)} ms), not benchmarked times: {'; '.join(parts)}"
        why = "A profiler locks the clock low: such times are too long. A ratio holds only if both its times are such."
        yield Finding(ERROR if clocked else WARNING, "profiler_time", f"README, {artifact.name}", what, why)


def speedups(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Check the README's speedups against its own times, and its baselines against eager PyTorch in the prompts."""
    where = f"README, {artifact.name}"
    given = {of: value for of in ("compile", "eager", "input") if (value := published.ms(of))}
    optimized = published.ms("optimized") or min(published.rounds.values(), default=None)
    prompted = trace.eager_ms(artifact)
    if "eager" in given and prompted and abs(given["eager"] / prompted - 1) > WRONG:
        what = f"eager takes {_pair(given['eager'], prompted, 'the prompts')}"
        yield Finding(WARNING, "readme_times", where, what, "The same baseline has two times.")
    if optimized is None or not given.keys() & {"compile", "eager"}:
        return
    for ratio, half in sorted(set(published.speedups)):
        rounding = ratio * ROUNDING_MS * (1 / optimized + 1 / min(given.values()))
        if all(abs(value / optimized - ratio) > half + rounding for value in given.values()):
            words = ", ".join(f"{value / optimized:.4g}x against {of}" for of, value in given.items())
            what = f"a speedup of {ratio:g}x, by its own times {words}"
            yield Finding(ERROR, "readme_speedup", where, what, "The ratio is of other times.")
    eager = prompted or given.get("eager")
    slower = "compile" in given and eager and given["compile"] > eager * (1 + WRONG)
    if slower and eager and not _profiled(artifact, published):
        what = (f"torch.compile takes {given['compile']:.4g} ms, eager {eager:.4g} ms: the speedup is "
                f"{eager / optimized:.2f}x against the faster one, {given['compile'] / optimized:.2f}x against "
                "torch.compile")  # fmt: skip
        yield Finding(WARNING, "slower_baseline", where, what, "A speedup holds against the best baseline.")


def readme_profiles(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Find the profiles that the README's table of metrics is from, and their dtype."""
    where, needed = f"README, {artifact.name}", trace.work(artifact)
    shipped_number = trace.shipped_round(artifact)[0] or trace.best_round(artifact)
    by_number = {r.number: r for r in artifact.rounds}
    severity, timed = NOTE, ""
    parts: list[str] = []
    wrong: list[str] = []
    for which in PROFILES:
        figures = [metric for metric in published.metrics if metric.which == which]
        due = min(by_number, default=None) if which == "input" else shipped_number
        if not figures or not by_number:
            continue
        (kind, number), missed = _source(artifact, figures, which, due)
        kind_words = "" if kind == which else f"{kind} "
        if 2 * len(missed) >= len(figures):
            severity = WARNING
            parts.append(f"{which} ({', '.join(m.text for m in figures)}) is no round's profile")
            continue
        dtype = trace.profile_dtype(by_number[number], kind, needed) if needed else None
        timed = by_number[number].dtype
        text = f"{which} is round {number}'s {kind_words}profile ({dtype or 'dtype not known'})"
        wrong += [text] if dtype and timed and dtype != timed else []
        if missed:
            text += f" except {', '.join(m.text for m in missed)}"
        if (kind, number) != (which, due):
            text += f", not round {due}'s: {_values(by_number[due], which, figures)}" if due in by_number else ""
        severity = WARNING if missed or (kind, number) != (which, due) else severity
        parts.append(text)
    if parts and (severity == WARNING or not wrong):
        why = "The table does not describe the kernel beside it." if severity == WARNING else "Every figure agrees."
        yield Finding(severity, "readme_profile", where, "; ".join(parts), why)
    if wrong:
        what = f"{'; '.join(parts if severity == NOTE else wrong)}; times are {timed}"
        what += _timed_bandwidth(artifact, published, shipped_number)
        yield Finding(WARNING, "readme_profile_dtype", where, what, "The figures are of another run than the times.")


def _timed_bandwidth(artifact: Artifact, published: Published, number: int | None) -> str:
    """Return a sentence on the bandwidth that the shipped round's time and compulsory bytes give; "" if not known."""
    timed = next((r for r in artifact.rounds if r.number == number and r.timing.time_ms), None)
    needed, peak = trace.work(artifact), trace.peak_bandwidth(artifact)
    if timed is None or needed is None or peak is None or timed.dtype not in trace.SIZES:
        return ""
    moved = (needed.read_elements + needed.written_elements) * trace.SIZES[timed.dtype]
    time_ms = timed.timing.time_ms or 0.0
    rate = moved / time_ms * 1e3
    theirs = [m.text for m in published.metrics if m.which == "optimized" and m.name in trace.BANDWIDTH]
    given = f" (README: {', '.join(theirs)})" if theirs else ""
    return (f". The timed round {number} must move {moved / 1e9:.3g} GB in {time_ms:.4g} ms: {rate / 1e9:.0f} GB/s, "
            f"{100 * rate / peak:.0f} % of the peak{given}")  # fmt: skip


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
        if published.best_round not in (None, first):
            what = f"the README names round {published.best_round} as best, in its table it is round {first}"
            yield Finding(WARNING, "best_round", where, what, "The README contradicts itself.")


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
        formatted = "" if exactly else " in other formatting"
        what = f"is round {number}'s kernel{formatted} ({cost}), the fastest is round {best}'s ({own[best]:.4g} ms)"
        yield Finding(WARNING, "shipped_kernel", where, what, "The table's best time is another kernel's.")
    elif not exactly:
        what = f"is round {number}'s kernel in other formatting"
        yield Finding(NOTE, "shipped_kernel", where, what, "The same program, not the same file.")


def protocols(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Check whether all rounds were timed in the same way, and as the README's table."""
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


def profile_dtype(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Compare the dtype of every profile, inferred from its bytes, with the dtype that was timed."""
    needed = trace.work(artifact)
    if needed is None:
        if any(r.profile(which) for r in artifact.rounds for which in PROFILES):
            what = "the traffic of this problem at these sizes is not known"
            yield Finding(NOTE, "profile_dtype", artifact.name, what, "The dtype of its profiles was not inferred.")
        return
    parts, count, timed = [], 0, ""
    for which in PROFILES:
        wrong: dict[str, list[int]] = {}
        for each in artifact.rounds:
            found = trace.profile_dtype(each, which, needed)
            if found is not None and each.dtype and found != each.dtype:
                wrong.setdefault(found, []).append(each.number)
                count, timed = count + 1, each.dtype
        parts += [f"{which} profile of round {_numbers(numbers)} {dtype}" for dtype, numbers in wrong.items()]
    if parts:
        total = sum(bool(r.profile(which)) for r in artifact.rounds for which in PROFILES)
        what = f"{count} of {total} profiles moved the bytes of another dtype than {timed}, which was timed: "
        why = "Their bandwidth, cache hits and occupancy are of another run than the one that was timed."
        yield Finding(WARNING, "profile_dtype", f"{artifact.name}/{TRACE}", what + "; ".join(parts), why)


def baselines(artifact: Artifact, published: Published) -> Iterator[Finding]:
    """Note that the trace times one kernel without a comparison."""
    if artifact.rounds:
        what = f"{TIMES} holds the round's kernel and no baseline"
        why = "No speedup can be computed from the trace: repro benchmark measures it."
        yield Finding(NOTE, "no_baseline", f"{artifact.name}/{TRACE}", what, why)


CHECKS: tuple[Check, ...] = (
    missing_files, unreadable, metrics, readme_times, profiler_times, speedups, readme_profiles, protocols, shipped,
    running_best, profile_dtype, parents, repairs, transcripts, baselines,
)  # fmt: skip


def _where(artifact: Artifact, found: layout.Round) -> str:
    return f"{artifact.name}/{TRACE}/{found.path.name}"


def _severity(value: float, against: float) -> str:
    return ERROR if abs(value / against - 1) > WRONG else WARNING


def _pair(value: float, against: float, place: str = "the trace") -> str:
    return f"{value:.4g} ms, in {place} {against:.4g} ms ({100 * (value / against - 1):+.1f} %)"


def _numbers(numbers: Iterable[int]) -> str:
    """Return round numbers with runs of three and more folded: `1, 3 to 8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _runs(off: list[tuple[int, float, float]]) -> str:
    """Return the README's and the trace's times of rounds, equal pairs in one; of more than four only the range."""
    pairs: dict[tuple[float, float], list[int]] = {}
    for number, value, against in sorted(off):
        pairs.setdefault((value, against), []).append(number)
    if len(pairs) <= 4:
        return "; ".join(f"round {_numbers(numbers)} is {_pair(*pair)}" for pair, numbers in pairs.items())
    values, againsts = zip(*pairs, strict=True)
    shares = [100 * (value / against - 1) for value, against in pairs]
    numbers = _numbers(number for number, *_ in off)
    return (f"round {numbers} is {min(values):.4g} to {max(values):.4g} ms, in the trace {min(againsts):.4g} to "
            f"{max(againsts):.4g} ms ({min(shares):+.1f} to {max(shares):+.1f} %)")  # fmt: skip


def _profiled(artifact: Artifact, published: Published) -> dict[int, int]:
    """Return rounds whose README time is far from the trace's and the duration of a profile -> that profile's round.

    Of several profiles it is the one of the round that set the running best. Near times prove nothing: a kernel that
    waits for memory takes as long at a locked clock.
    """
    durations = {r.number: d for r in artifact.rounds if (d := trace.duration_ms(r, "optimized")) is not None}
    own, found = trace.times(artifact), {}
    best = trace.running_best(own)
    for number, value in published.rounds.items():
        if number in own and ERROR == _severity(value, best[number]) and _off(value, own[number]):
            same = [n for n, d in durations.items() if abs(d / value - 1) <= SAME_CLOCK]
            if same:
                found[number] = min(same, key=lambda n: (own.get(n) != best[number], n))
    return found


def _profiled_input(artifact: Artifact, published: Published) -> bool:
    """Return whether the README's time of the input kernel is the duration of its profile, and no benchmarked time."""
    given, prompted = published.ms("input"), trace.input_ms(artifact)
    duration = trace.duration_ms(artifact.rounds[0], "input") if artifact.rounds else None
    if not given or not duration or abs(duration / given - 1) > SAME_CLOCK:
        return False
    return abs(given / prompted - 1) > WRONG if prompted else bool(_profiled(artifact, published))


def _source(
    artifact: Artifact, figures: list[Metric], which: str, due: int | None
) -> tuple[tuple[str, int], list[Metric]]:
    """Return the profile that agrees with most figures, the expected one first, and the figures that it lacks."""
    found = []
    for kind in PROFILES:
        for each in artifact.rounds:
            for values in each.profile(kind).values() or ({},):
                missed = [m for m in figures if not _agrees(layout.single(values.get(m.name)), m)]
                found.append((len(missed), kind != which, each.number != due, each.number, kind, missed))
    *_, number, kind, missed = min(found, key=lambda each: each[:4])
    return (kind, number), missed


def _agrees(value: float | None, figure: Metric) -> bool:
    return value is not None and abs(value - figure.value) <= figure.half * (1 + 1e-6)


def _values(each: layout.Round, which: str, figures: list[Metric]) -> str:
    """Return a round's own values of the metrics that the README has."""
    values = next(iter(each.profile(which).values()), {})
    own = ((layout.single(values.get(m.name)), m) for m in figures)
    return ", ".join("none" if value is None else f"{value / m.scale:.4g} {m.unit}" for value, m in own)


def _unread(readme: Readme, numbers: set[int | None]) -> list[Unread]:
    return [each for each in readme.unread if each.artifact is None or each.artifact in numbers]


def of_readme(readme: Readme, numbers: set[int | None], there: bool) -> Iterator[Finding]:
    """Find a README that is missing or has figures that were not understood."""
    if not there:
        yield Finding(NOTE, "readme_times", "README", "missing", "No published figure was compared.")
    lines: dict[int, list[str]] = {}
    for each in _unread(readme, numbers):
        lines.setdefault(each.line, []).append(each.text)
    if lines:
        words = [f"line {line}: {', '.join(texts)}" for line, texts in lines.items()]
        more = [f"{len(words) - SHOWN_LINES} more lines"] if len(words) > SHOWN_LINES else []
        many = sum(map(len, lines.values()))
        what = (
            f"{many} {'figure was' if many == 1 else 'figures were'} not read: {'; '.join(words[:SHOWN_LINES] + more)}"
        )
        yield Finding(WARNING, "readme_unread", "README", what, "No check compared them with the trace.")


def _folded(findings: list[tuple[Artifact, Finding]]) -> Iterator[Finding]:
    """Yield findings; the same one of several artifacts is one, with `{04,36}*` in place of their names."""
    same: dict[Finding, dict[str, Finding]] = {}
    for artifact, finding in findings:
        key = replace(finding, where=finding.where.replace(artifact.name, "*"))
        same.setdefault(key, {})[artifact.name] = finding
    for key, by_name in same.items():
        names = ",".join(name.partition("_")[0] for name in by_name)
        one = len(by_name) == 1
        yield next(iter(by_name.values())) if one else replace(key, where=key.where.replace("*", f"{{{names}}}*", 1))


def counts(found: list[Artifact]) -> dict[str, Any]:
    """Return how many rounds and profiles there are, parents were found, kernels differ from the reply; by dtype."""
    rounds = [(artifact, each) for artifact in found for each in artifact.rounds]
    dtypes: dict[str, int] = {}
    for artifact, each in rounds:
        needed = trace.work(artifact)
        for which in PROFILES:
            if each.profile(which):
                dtype = trace.profile_dtype(each, which, needed) if needed else None
                dtypes[dtype or "unknown"] = dtypes.get(dtype or "unknown", 0) + 1
    return {
        "rounds": len(rounds),
        "parents_found": sum(trace.parent(artifact, each)[0] is not None for artifact, each in rounds),
        "repaired": sum(trace.repaired(each) is True for _, each in rounds),
        "profiles": sum(dtypes.values()),
        "profile_dtypes": dict(sorted(dtypes.items())),
    }


def lint(root: Path, names: list[str] | None = None) -> dict[str, Any]:
    """Run every check on every artifact below `root`.

    Return findings, counts, unread figures and a summary of each artifact. Raises UsageError if there is no artifact.
    """
    found = layout.find(root, names)
    text, there = layout.readme(root)
    readme = tables.read(text, there | {a.number for a in found if a.number is not None})
    published = {artifact.name: readme.artifacts[artifact.number or 0] for artifact in found}
    numbers = {artifact.number for artifact in found}
    every = [(a, finding) for a in found for check in CHECKS for finding in check(a, published[a.name])]
    findings = [*_folded(every), *of_readme(readme, numbers, bool(text))]
    if text:
        unread = [a.name for a in found if a.rounds and not published[a.name].rounds]
        why = "They were not compared."
        findings += [Finding(WARNING, "readme_times", f"README, {n}", "no times of its rounds were read", why)
                     for n in unread]  # fmt: skip
    order = (ERROR, WARNING, NOTE)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": root.resolve().name,
        "artifacts": [trace.summary(artifact, published[artifact.name]) for artifact in found],
        "findings": [asdict(finding) for finding in findings],
        "errors": sum(finding.severity == ERROR for finding in findings),
        "counts": counts(found),
        "unread": [{"line": each.line, "text": each.text} for each in _unread(readme, numbers)],
    }
