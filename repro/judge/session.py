"""Judges solutions of one problem: trials, then timing against the torch baselines, then verdicts."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch

from repro.errors import JudgeError, SolutionError
from repro.judge import baselines, verdict
from repro.judge.correctness import alternate_shape, input_cases
from repro.judge.correctness.verification import Evaluation
from repro.judge.gpu import memory
from repro.judge.implementation import Implementation, Options, Progress
from repro.judge.sandbox import confinement, pool
from repro.judge.source import provenance
from repro.judge.timing import precompile, roofline
from repro.judge.timing.experiment import DISTURBED_CODE, Blamed, Experiment
from repro.judge.timing.precompile import Ahead
from repro.judge.timing.sampling import Excess, Series
from repro.problems.catalogue import Problem
from repro.system.stopwatch import Clock

CONTROL = "control (eager again)"


def evaluate(
    problem: Problem,
    fixture: dict[str, Any],
    solutions: list[tuple[str, Path, str]],
    options: Options,
    progress: Progress = lambda _: None,
    mark: Progress = lambda _: None,
) -> dict[str, Any]:
    """Judge solutions (name, file, entry) of one problem. mark: called with `warm` and `timed` before and after timing.

    Return {"results": one verdict a solution, "baselines", "timing", "ceilings", "seeds", "wall_s"}. A solution's fault
    becomes its verdict. JudgeError is raised only for faults of the problem, the fixture or the judge.
    """
    clock = Clock()
    cuda = options.device == "cuda"
    if options.trust != "dev":
        confinement.shield()
    watch = memory.DeviceMemory(str(torch.cuda.get_device_properties(0).uuid) if cuda else None)
    watch.start()
    reached = roofline.measure(torch.device("cuda")) if cuda else None
    clock.lap("ceilings")
    implementations = [Implementation(name, source, entry, [name]) for name, source, entry in map(_named, solutions)]
    for implementation in implementations:
        _ban(implementation)
    evaluation = Evaluation(problem, fixture, implementations, options, progress, mark)
    planned = input_cases.make(evaluation.plan)
    clock.lap("problem")
    compiling: list[Ahead] = []
    trusted = [Implementation(name, None, "Model", []) for name in baselines.workers(problem.dtype, options.modes)]
    try:
        watch.mark()
        running = [s for s in implementations if not s.failed]
        if running and options.timing and cuda and options.trust == "audited" and precompile.room(evaluation):
            precompile.begin(evaluation, trusted, compiling)
            evaluation.noted = lambda: precompile.foresee(evaluation, compiling)
        evaluation.refer()
        clock.lap("reference")
        evaluation.start(*running)
        clock.lap("workers")
        evaluation.verify(planned)
        peak = watch.mark()
        for implementation in implementations:
            implementation.memory = _peak(implementation, peak)
        alternate_shape.look(evaluation, planned)
        clock.lap("trials")
        judged = {s.name: verdict.judge(s, fixture) for s in implementations}
        good = [s for s in implementations if judged[s.name]["verdict"] == "correct"]
        evaluation.end(*[s for s in implementations if s not in good])  # they are not used any more
        wanted, verified = precompile.wanted(evaluation, good) if options.timing else set(), time.monotonic()
        for each in compiling:
            if each.implementation.name not in wanted:
                each.dismiss()
        for each in compiling:
            if each.implementation.name in wanted:
                each.wait(verified)
            else:
                each.drop()
        clock.lap("waiting for torch.compile")
        series: dict[str, Series] = {}
        facts: dict[str, Any] = {"status": "not_timed"}
        timed = Clock()
        if options.timing and good:
            series, facts = _timed(evaluation, good, judged, trusted, compiling, timed)
        clock.lap("timing")
        ours = {s.name for s in implementations} | {CONTROL}
        return {
            "results": [
                verdict.result(problem, s, judged[s.name], series, facts, reached, options.trust)
                for s in implementations
            ],
            "baselines": {n: verdict.baseline(x) for n, x in series.items() if n not in ours},
            "samples_ms": {n: x.to_json() for n, x in series.items()},
            "timing": facts
            | {"compile_ahead_s": {name: s for each in compiling for name, s in each.spent_s.items()}}
            | {"clock": "CUDA events behind a gate, cold L2" if cuda else "host: not a measurement"},
            "ceilings": reached,
            "trials": [{"kind": t.kind, "seed": t.seed} for t in planned],
            "trials_left_out": {k: why for k, why in input_cases.kinds(evaluation.plan).items() if why},
            "margin": fixture["margin"],
            "margins": fixture.get("margins", {}),
            "spent_s": clock.laps,
            "trials_spent_s": evaluation.spent_s,
            "trials_parts_spent_s": evaluation.parts.laps,
            "timing_spent_s": timed.laps,
            "wall_s": clock.total(),
        }
    finally:
        watch.stop()
        for each in compiling:
            each.drop()
        evaluation.end(*trusted)
        evaluation.close()


def _named(solution: tuple[str, Path, str]) -> tuple[str, Path, str]:
    """Rename a solution whose name the judge uses itself: `baseline`, `eager`, `compile_tf32`."""
    name, source, entry = solution
    reserved = ("baseline", "control", "eager", "compile", "reduce", "max")
    return f"{name} (solution)" if name.replace(" ", "_").partition("_")[0] in reserved else name, source, entry


def _ban(implementation: Implementation) -> None:
    """Reject a source that uses banned names before it runs."""
    found = provenance.bans(implementation.source) if implementation.source is not None else []
    if found:
        implementation.failed = "rejected"
        implementation.reasons += [entry | {"trial": "source"} for entry in found]


def _peak(implementation: Implementation, device_peak: int | None) -> dict[str, Any]:
    if implementation.worker is None or implementation.failed in ("timeout", "error"):
        return {"reason": "the worker had ended"}
    with contextlib.suppress(SolutionError):
        return {"solution": implementation.ask({"op": "peak"}, 30), "device_over_start_bytes": device_peak}
    return {"reason": "the worker did not answer"}


def _timed(
    evaluation: Evaluation,
    good: list[Implementation],
    judged: dict[str, Any],
    trusted: list[Implementation],
    compiling: list[Ahead],
    clock: Clock,
) -> tuple[dict[str, Series], dict[str, Any]]:
    """Time the correct solutions. One that fails loses its verdict, and the others are timed again.

    If the baselines were slower beside solutions, all are timed again once, since a busy host slows them too. If they
    are slower again beside several solutions, each solution is timed alone, once, to find the cause. A solution whose
    clocks disagree slightly is timed again in a new worker, once. Discarded measurements are kept whole with the reason
    (`discarded`).
    """
    options = evaluation.options
    discarded = list[dict[str, Any]]()
    again, may_retry = list[str](), True
    suspects, searched = list[Implementation](), False  # solutions still to be timed alone
    before: dict[str, dict[str, Excess]] = {}
    control = Implementation(CONTROL, None, "Model", ["eager"], control=True) if options.controlled else None
    late = {variant: why for each in compiling for variant, why in each.why.items()}
    try:
        while good:
            group = suspects[:1] or good
            evaluation.end(*[s for s in good if s not in group])
            classes = {s.name: judged[s.name]["precision_class"] for s in group}
            names = baselines.names(evaluation.problem.dtype, set(classes.values()), options.modes)
            chosen = []
            for implementation in trusted:
                implementation.variants = [
                    n for n in names if n not in late and baselines.worker_of(n) == implementation.name
                ]
                chosen += [implementation] if implementation.variants else []
                evaluation.loaded.pop(implementation.name, None)  # new variants are bound when weights are loaded
            fixed = [*chosen, *([control] if control is not None else [])]
            evaluation.start(*[s for s in [*fixed, *group] if s.worker is None])
            clock.lap("workers")
            for implementation in fixed:
                if implementation.failed:
                    raise JudgeError(
                        f"the baselines of {evaluation.problem.key} do not start", str(implementation.reasons)
                    )
            lost = [s for s in group if s.failed]  # were correct, but did not start again
            judged |= {s.name: verdict.judge(s, evaluation.fixture) for s in lost}
            good, suspects, group = ([s for s in listed if s not in lost] for listed in (good, suspects, group))
            if not group:
                continue
            experiment = Experiment(evaluation, group, classes, chosen, control, clock, before)
            experiment.left_out |= {n: why for n, why in late.items() if n in names}
            try:
                with pool.paused():
                    series, facts = experiment.run()
                if group == good:
                    return series, facts | ({"timed_again": "; ".join(again)} if again else {}) | _kept(discarded)
                discarded += _discarded(
                    experiment, group[0], "alone", "the baselines were not slower beside this solution alone"
                )
                suspects.pop(0)
            except Blamed as blamed:
                error = blamed.error
                discarded += _discarded(experiment, blamed.implementation, error.code, error.detail)
                if blamed.implementation.trusted:
                    raise JudgeError(
                        f"timing of {evaluation.problem.key} failed", f"{error.code}: {error.detail}"
                    ) from error
                # A compilation that took too long would do so again.
                late |= {n: why for n, why in experiment.left_out.items() if n in names and why.startswith("timeout")}
                disturbed = error.code == DISTURBED_CODE and may_retry and not suspects
                if error.code == DISTURBED_CODE and not disturbed and len(group) > 1 and not searched:
                    suspects, searched = [*group], True
                    again.append(f"each alone: {error.detail}")
                    evaluation.progress(f"{evaluation.problem.key}: timed again, each alone: {error.detail}")
                    continue
                if disturbed or blamed.marginal is not None:
                    again.append(error.detail)
                    evaluation.progress(f"{evaluation.problem.key}: timed again: {error.detail}")
                    may_retry = may_retry and not disturbed
                    if blamed.marginal is not None:
                        before[blamed.implementation.name] = blamed.marginal
                        evaluation.end(blamed.implementation)  # a new process may be placed better
                    continue
                may_retry = True
                blamed.implementation.fail(error, "timing")
                evaluation.end(blamed.implementation)
                judged[blamed.implementation.name] = verdict.judge(blamed.implementation, evaluation.fixture)
                good, suspects = ([s for s in listed if s is not blamed.implementation] for listed in (good, suspects))
    finally:
        clock.lap()
        evaluation.end(*trusted, *([control] if control is not None else []))
        clock.lap("ending")
    return {}, {"status": "not_timed"} | _kept(discarded)


def _discarded(experiment: Experiment, implementation: Implementation, code: str, detail: str) -> list[dict[str, Any]]:
    """Return the record of a discarded measurement with its reason; empty if nothing was measured."""
    if not experiment.series:
        return []
    samples = {name: found.to_json() for name, found in experiment.series.items()}
    late = sorted(experiment.launching.late)
    return [
        {"solution": implementation.name, "code": code, "detail": detail, "launched_late": late, "samples_ms": samples}
    ]


def _kept(discarded: list[dict[str, Any]]) -> dict[str, Any]:
    return {"discarded": discarded} if discarded else {}
