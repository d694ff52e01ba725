"""`repro benchmark`: the artifact study. Every kernel of a folder is judged before it is timed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from repro import config
from repro.artifacts import layout, sources
from repro.artifacts.layout import KERNEL, KERNELS, Artifact
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import row as record
from repro.records.benchmark import Entry, ParityTimes, Round
from repro.records.job import Job
from repro.records.options import Options
from repro.records.profile import Profile
from repro.records.result import PUBLISHED_BASELINES, JudgeResult
from repro.records.verdict import Ratio, Verdict
from repro.runs import fixtures
from repro.runs.loop import ROWS_A_PROCESS, Run
from repro.runs.rows import Row
from repro.studies import evaluation
from repro.system.jsonio import Json

_DTYPE = "bfloat16"
# The source with the published folder, by its name in artifacts/sources.toml.
PUBLISHED = "kernelagent-artifacts"
# Fields of an entry that are those of its result.
_OF_A_RESULT = ("ceilings", "timing", "trials", "margin", "wall_s")
KERNEL_WORDS = {"input_kernel": "input", "optimized": "optimised"}
# Suffix of the id of the row with a folder's rounds.
ROUNDS = "/rounds"
# Suffix of the id of the row with the profiles of a folder's kernels, and the longest that its job may take, seconds:
# for each kernel a run of both dtypes and one of each alone, 120 s each, two more where the counters' permission must
# be found out, and their starts.
PROFILE, _PROFILE_S = "/profile", 1080.0
# Five problems must end within four minutes, 48 s each. Without the timing, a problem takes 12 to 15 s on an H200:
# start, fixture, workers, trials, torch.compile. Timing takes its budget, and up to twice as long again if a ratio
# stays open: 15 s. max-autotune compiles during the trials; the wait for it after them has its own bound.
OPTIONS = Options(timing_budget_s=5.0, compile_timeout_s=20.0)


def _problem(artifact: Artifact, size: str) -> tuple[Problem, str]:
    """Return the folder's own problem.py, and the shipped problem's id if it is one at the shipped sizes."""
    loaded = catalogue.load_file(artifact.path / "problem.py", dtype=_DTYPE, size=size)
    known = artifact.known
    return (catalogue.as_known(loaded, known), known) if known else (loaded, "")


def _job(run: Run, row: str, artifact: Artifact, files: dict[str, Path]) -> Job:
    """Return the job that judges those files of a folder that exist, by name. Raises UsageError if none does."""
    problem, known = _problem(artifact, run.size)
    found = {name: evaluation.read(file) for name, file in files.items() if file.exists()}
    submissions = [replace(each, name=name, entry="kernel_function") for name, each in found.items()]
    if not submissions:
        raise UsageError(f"{artifact.name} holds no kernel", f"none of {', '.join(KERNELS.values())} is there")
    return evaluation.job(run, row, problem, submissions, known_as=known)


def _row(
    run: Run, artifact: Artifact, files: dict[str, Path], build: Callable[[str], Job] | None = None, suffix: str = "",
    **more: Any,
) -> Row:  # fmt: skip
    """Return a row of one folder; anything missing or unreadable becomes its error. build: makes its job from its id;
    by default the job judges the files."""
    row_id = artifact.name + suffix
    missing = [str(file.relative_to(artifact.path)) for file in files.values() if not file.exists()]
    plan = record.Planned(row=row_id, problem=artifact.name, number=artifact.number, missing=missing, **more)
    job = build or (lambda row_id: _job(run, row_id, artifact, files))
    return evaluation.row_for(plan, partial(job, row_id), sources.withheld(artifact.path))


def _kernels(artifact: Artifact) -> dict[str, Path]:
    return {name: artifact.path / file for name, file in KERNELS.items()}


def row(run: Run, artifact: Artifact) -> Row:
    """Return the row of a folder's own kernels."""
    return _row(run, artifact, _kernels(artifact))


def _rounds_row(run: Run, artifact: Artifact) -> Row:
    """Return the row of a folder's rounds: the input kernel and every `round_N/kernel.py`, timed beside eager.

    They share one measurement, so that the ratio of a round to the input kernel is paired.
    """
    files = {"input_kernel": artifact.path / KERNELS["input_kernel"]}
    files |= {f"round_{r.number}": r.path / KERNEL for r in artifact.rounds}
    beside_eager = replace(run, options=run.options.but(modes=["eager"], passes=["control"]))
    published = {"0": None, **{str(r.number): r.timing.time_ms for r in artifact.rounds}}
    return _row(beside_eager, artifact, files, suffix=ROUNDS, rounds=published)


def _profile_row(run: Run, artifact: Artifact) -> Row:
    """Return the row with the profiles of a folder's kernels, which nothing else depends on."""
    files = _kernels(artifact)

    def build(row_id: str) -> Job:
        problem, known = _problem(artifact, run.size)
        texts = {f"{name}.py": evaluation.read(file).source for name, file in files.items() if file.exists()}
        return Job(
            row_id, "profile", "problem.py", problem.id, size=run.size, dtype=_DTYPE, device=run.engine.device,
            variant=known, solutions=tuple((name, f"{name}.py", "kernel_function") for name in files),
            files=texts | {"problem.py": problem.source}, timeout_s=_PROFILE_S,
        )  # fmt: skip

    row = _row(run, artifact, files, build, PROFILE, profile=True)
    return replace(row, group="profiles")  # every kernel has a process of its own below ncu


def own(row: record.Row) -> bool:
    """Return whether a row has an artifact's own kernels judged, and is not one of its rounds or profiles."""
    return row.rounds is None and row.profile is None


def rounds(row: record.Row) -> list[Round]:
    """Return the results of the input kernel (round 0) and of each round.

    Times that are not a measurement are never best.
    """
    result = row.judged or JudgeResult(results=[])
    fastest_ms, measured = math.inf, []
    for number, published_ms in (row.rounds or {}).items():
        name = f"round_{number}" if int(number) else "input_kernel"
        verdict = next((verdict for verdict in result.results if verdict.solution == name), None)
        time_ms = verdict.time_ms.median if verdict and verdict.measurement and verdict.time_ms else math.inf
        measured.append(Round(
            round=int(number), verdict=verdict.verdict if verdict else "not measured", why=_why(row, name, verdict),
            time_ms=verdict.time_ms if verdict else None, published_ms=published_ms,
            published_protocol_ms=result.parity_ms.get(name), best=time_ms < fastest_ms,
            over_input=_over_input(result, name) if verdict and int(number) else None,
        ))  # fmt: skip
        fastest_ms = min(fastest_ms, time_ms)
    return measured


def _why(row: record.Row, name: str, verdict: Verdict | None) -> str:
    """Return why a round's kernel is not correct, or the empty string."""
    if verdict is None:
        return row.error or f"{name} has no {KERNEL}"
    return "" if verdict.verdict == "correct" else evaluation.line(verdict)


def _over_input(result: JudgeResult, name: str) -> Ratio | None:
    """Return the paired speedup of a round's kernel over the input kernel, if both were timed."""
    from repro.judge.timing import speedups  # imports numpy, which most commands need not

    ours, theirs = result.samples_ms.get(name), result.samples_ms.get("input_kernel")
    if ours is None or theirs is None:
        return None
    return speedups.speedup(theirs.gated.device_ms, ours.gated.device_ms, trusted=False)


def entry(row: record.Row) -> Entry:
    """Return an entry of `--json`: the published script's keys, with verdicts, intervals and fingerprint."""
    result = row.judged or JudgeResult(results=[])
    kernels = {verdict.solution: verdict for verdict in result.results}
    optimized = kernels.get("optimized")
    times_ms = {name: baseline.time_ms for name, baseline in result.baselines.items()}
    times_ms |= {name: verdict.time_ms for name, verdict in kernels.items() if verdict.time_ms}
    parity = None
    if result.parity:
        parity = ParityTimes.model_validate(result.parity.to_json() | published_keys(result.parity.times_ms))
    return Entry(
        problem=row.problem, status=row.status, fingerprint_id=row.fingerprint_id, times_ms=times_ms,
        best_baseline=optimized.speedup.get("best_same_class") if optimized else None,
        floor_ms=optimized.floor_ms if optimized else None,
        floor_fraction=optimized.floor_fraction if optimized else None,
        kernels=kernels, baselines=result.baselines, samples_ms=result.samples_ms, parity=parity,
        no_measurement=result.no_measurement, reasons=_reasons(row, result),
        **published_keys({name: time.median for name, time in times_ms.items()}),
        **{name: getattr(result, name) for name in _OF_A_RESULT if row.judged},
    )  # fmt: skip


def _reasons(row: record.Row, result: JudgeResult) -> list[str]:
    """Return everything that is missing or wrong of a folder, in words."""
    reasons = [f"{name} is missing" for name in row.missing]
    if row.judged is None:
        return [*reasons, row.error]
    if result.no_measurement:
        reasons.append(f"times are no measurement: {result.no_measurement}")
    reasons += [f"{v.solution}: {evaluation.line(v)}" for v in result.results if v.verdict != "correct"]
    return reasons + [f"{name} is left out: {why}" for name, why in result.timing.left_out.items()]


def published_keys(times_ms: Mapping[str, float | None]) -> Json:
    """Return times by the published script's keys, None for missing ones."""
    return {f"{name}_ms": times_ms.get(name) for name in (*PUBLISHED_BASELINES, *KERNELS)}


def ships(artifact: Artifact) -> bool:
    """Return whether a kernel of a folder equals, byte for byte, one that ships with the project."""
    ours = [a for a in layout.find(config.ARTIFACTS_DIR) if a.number == artifact.number]
    return any(text == our.text(file) for our in ours for file in KERNELS.values() if (text := artifact.text(file)))


def entries(rows: Iterable[record.Row]) -> list[Entry]:
    """Return `--json`: one entry for each folder, with its rounds and profiles if they were requested."""
    rows = list(rows)
    found = {row.problem: entry(row) for row in rows if own(row)}
    for row in rows:  # on several GPUs, the rounds of a folder may be measured before its own kernels, or elsewhere
        if row.problem not in found:
            error = "its input and optimised kernels are not among these rows"
            found[row.problem] = entry(row.model_copy(update={"result": None, "error": error}))
        if not own(row):
            more = {"profiles": row.profiles} if row.profile else {"rounds": rounds(row)}
            found[row.problem] = found[row.problem].model_copy(update=more)
    return list(found.values())


def rounds_line(row: record.Row) -> str:
    """Return `8 of 8 correct, fastest 5, 3.67x [3.67, 3.67] over input`: the last round that was the fastest."""
    found = [each for each in rounds(row) if each.round]
    line = f"{sum(each.verdict == 'correct' for each in found)} of {len(found)} correct"
    for each in [each for each in found if each.best][-1:]:
        line += f", fastest {each.round}"
        if gain := each.over_input:
            line += f", {gain.ratio:#.3g}x [{gain.ci95[0]:#.3g}, {gain.ci95[1]:#.3g}] over input"
    return line


def profiles_line(entries: list[Profile]) -> str:
    """Return how many calls were profiled, and why the others were not."""
    whys = [each.told for each in entries if each.state != "profiled"]
    return "; ".join([f"{len(entries) - len(whys)} of {len(entries)} calls profiled", *dict.fromkeys(whys)])


def summary(row: record.Row) -> str:
    """Return a finished row's line: each kernel's verdict with its time and speedups, the rounds, or the profiles."""
    if row.rounds is not None:
        return rounds_line(row)
    if row.profile:
        return profiles_line(row.profiles)
    return "; ".join(f"{each.solution} {evaluation.line(each)}" for each in row.verdicts)


def run(
    run: Run, root: Path, names: list[str], *, with_rounds: bool = False, with_profiles: bool = False
) -> tuple[Bundle, list[Entry]]:
    """Judge and time every folder, with its rounds and profiles if requested; return the bundle and the entries of
    `--json`.

    Raises UsageError if rounds are requested and no folder has one.
    """
    artifacts = layout.find(root, names)
    if with_rounds and not any(artifact.rounds for artifact in artifacts):
        raise UsageError(f"no rounds in {root}", "no folder holds optimization_trace/round_N", "Leave --rounds out.")
    wanted = []
    for artifact in artifacts:
        with contextlib.suppress(UsageError):  # its row says why there is no problem
            wanted += [_problem(artifact, run.size)[0]] * (2 if with_rounds and artifact.rounds else 1)
    fixtures.ensure(run, wanted, lambda problem: sources.withheld(problem.path.parent))
    rows = [row(run, artifact) for artifact in artifacts]
    if with_rounds:
        rows += [_rounds_row(run, artifact) for artifact in artifacts if artifact.rounds]
    if with_profiles:
        rows += [_profile_row(run, artifact) for artifact in artifacts]
    parameters = run.parameters(
        artifacts=root.resolve().name, shipped=any(map(ships, artifacts)), quick=run.options == run.options.quick()
    )
    bundle = run.open("benchmark", rows, parameters)
    shared = root.resolve() == config.ARTIFACTS_DIR.resolve() and run.options.trust == "audited"
    return bundle, entries(run.execute(rows, bundle, summary, together=ROWS_A_PROCESS if shared else 1))
