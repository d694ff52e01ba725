"""Judging solutions of one problem: trials, then paired timing against the torch baselines, then verdicts."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from repro import inputs as inputs_module
from repro.errors import JudgeError, SolutionError, SolutionRejected
from repro.inputs import Plan, Weights
from repro.judge import ceilings, gates, memory, provenance, timing, trials, verdict
from repro.judge.limits import class_of
from repro.judge.metric import Distance
from repro.judge.process import WorkerProcess
from repro.judge.reference import Reference, chunks, leaves, output_spec, rows_per_chunk
from repro.judge.slots import Slots
from repro.problems import Problem

COMPILE_TIMEOUT_S = 600.0
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to judge. timeout_s bounds one request to a solution; timing_budget_s the sampling of one problem."""

    device: str = "cuda"
    timing: bool = True
    baselines: tuple[str, ...] = ("eager", "compile")
    timeout_s: float = 180.0
    timing_budget_s: float = 20.0


@dataclass
class Subject:
    """One solution under judgement, or the trusted torch baselines (source None)."""

    name: str
    source: Path | None
    entry: str
    variants: list[str]
    worker: WorkerProcess | None = None
    distances: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    legacy: dict[str, dict[str, bool]] = field(default_factory=dict)
    reasons: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        return self.source is None

    def fail(self, error: SolutionError, trial: str) -> None:
        """Notes the error as this solution's verdict; the first one counts."""
        self.failed = self.failed or error.verdict
        self.reasons.append({"code": error.code, "trial": trial, "detail": error.detail})


class _Blamed(Exception):
    """A failure while timing, and whose it is."""

    def __init__(self, subject: Subject, error: SolutionError) -> None:
        super().__init__(error.code)
        self.subject, self.error = subject, error


class Evaluation:
    """State of one evaluation: plan, buffers, references, subjects."""

    def __init__(
        self, problem: Problem, fixture: dict[str, Any], subjects: list[Subject], options: Options, progress: Progress
    ) -> None:
        self.problem, self.fixture, self.options, self.progress = problem, fixture, options, progress
        self.device = torch.device(options.device)
        self.plan: Plan = inputs_module.plan(problem)
        self.native = inputs_module.weights(problem, self.plan.module)
        if self.native.sha256 != fixture["weights_sha256"]:
            raise JudgeError(
                f"the weights of {problem.key} differ from the fixture's",
                "another torch version may initialise differently",
                "Run `make fixtures` again on this stack.",
            )
        self.spec = output_spec(self.plan, self.native)
        self.subjects = subjects
        self.reference = Reference(self.plan, self.native, self.device)
        self.reference_of = "native"
        self.rows = rows_per_chunk(self.plan, self.reference, self.spec)
        self.slots = Slots(self.plan, self.spec, self.rows, self.device)
        self.loaded: dict[str, str] = {}

    def use(self, name: str, state: Weights) -> None:
        """Makes the fp64 reference one of these weights."""
        if self.reference_of != name:
            self.reference.load(state)
            self.reference_of = name

    def load(self, subject: Subject, name: str, state: Weights) -> None:
        """Hands the weights to a worker, piece by piece through the staging buffer."""
        worker = subject.worker
        assert worker is not None
        if self.loaded.get(subject.name) == name:
            return
        staging = self.slots.staging
        for key, value in state.state.items():
            flat = value.contiguous().view(-1)
            step = staging.nbytes // value.element_size()
            dtype = str(value.dtype).removeprefix("torch.")
            for start in range(0, max(1, flat.numel()), step):
                part = flat[start : start + step]
                staging.view(value.dtype, (part.numel(),)).copy_(part)
                self.slots.synchronize()
                worker.ask({"op": "piece", "name": key, "dtype": dtype, "shape": list(value.shape),
                            "start": start, "count": part.numel()}, self.options.timeout_s)  # fmt: skip
        worker.ask({"op": "load", "init": state.init, "variants": subject.variants}, self.options.timeout_s)
        self.loaded[subject.name] = name

    # -- correctness ----------------------------------------------------------------------------------------------

    def compare(self, subject: Subject, described: Any, only: slice | None = None) -> Distance:
        """The worker's kept output against the reference, all rows or those of `only`."""
        if not subject.trusted:
            gates.check(described, self.spec, self.device.type)
        worker = subject.worker
        assert worker is not None
        distance = Distance()
        staging = self.slots.staging
        for part in [only] if only is not None else chunks(self.plan, self.rows):
            expected = self.reference(self.plan.chunk(part, self.slots.seed, self.device, self.slots.stress))
            for (path, leaf), reference in zip(leaves(self.spec), expected, strict=True):
                dtype = getattr(torch, leaf["dtype"])
                count = reference.numel()
                start = part.start * (count // max(1, reference.shape[0])) if part is not None else 0
                staging.poison()
                self.slots.synchronize()
                worker.ask({"op": "fetch", "path": list(path), "start": start, "count": count}, self.options.timeout_s)
                distance.add(staging.view(dtype, tuple(reference.shape)), reference)
        if not distance.finite:
            raise SolutionRejected("not_finite", "the output is not finite where the reference is, or was not written")
        return distance

    def trial(self, subject: Subject, trial: trials.Trial, state: Weights) -> None:
        """One trial of one solution; its faults become reasons."""
        try:
            self.load(subject, "perturbed" if trial.perturbed else "native", state)
            self.slots.fill(trial.seed, trial.stress)
            assert subject.worker is not None
            variant = subject.variants[0]
            answer = subject.worker.ask(
                {"op": "run", "variant": variant, "inputs": self.slots.told()}, self.options.timeout_s
            )
            distance = self.compare(subject, answer.get("output"))
            subject.distances.setdefault(trial.kind, []).append(distance.values())
            legacy = subject.legacy.setdefault(trial.kind, dict(distance.legacy))
            for name, passed in distance.legacy.items():
                legacy[name] = legacy[name] and passed
            if not self.slots.unchanged():
                raise SolutionRejected("input_modified", "the call changed its inputs")
            subject.worker.ask({"op": "release"}, self.options.timeout_s)
        except SolutionError as error:
            subject.fail(error, trial.kind)
            if subject.failed != "incorrect":
                self.end(subject)

    def verify(self, planned: list[trials.Trial]) -> None:
        """All trials of all solutions; trials that share weights follow each other."""
        perturbed: Weights | None = None
        for subject in self.subjects:
            self.start(subject)
        for trial in sorted(planned, key=lambda t: t.perturbed):
            if trial.perturbed and perturbed is None:
                perturbed = trials.perturbed_weights(self.plan, self.device)
            state = perturbed if trial.perturbed and perturbed is not None else self.native
            self.use("perturbed" if trial.perturbed else "native", state)
            for subject in self.subjects:
                if subject.failed in ("", "incorrect") and subject.worker is not None:
                    self.progress(f"{self.problem.key}: {subject.name}: {trial.kind}")
                    self.trial(subject, trial, state)

    def start(self, subject: Subject) -> None:
        """Starts a subject's worker and has it import its file."""
        try:
            subject.worker = WorkerProcess(subject.name, self.device, self.slots.buffers, trusted=subject.trusted)
            subject.worker.start()
            problem = {
                "id": self.problem.id,
                "path": str(self.problem.path),
                "dtype": self.problem.dtype,
                "overrides": self.problem.overrides,
            }
            source = str(subject.source) if subject.source is not None else None
            message = {"op": "define", "source": source, "entry": subject.entry, "problem": problem}
            subject.worker.ask(message | {"inputs": len(self.plan.spec)}, self.options.timeout_s)
        except SolutionError as error:
            subject.fail(error, "import")
            self.end(subject)

    def end(self, subject: Subject) -> None:
        """Ends the worker of a solution that is done with, so that what it holds of the GPU is free for the others."""
        if subject.worker is not None:
            subject.worker.close()
            subject.worker = None

    # -- timing ---------------------------------------------------------------------------------------------------

    def time(self, timed: list[Subject], baseline: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
        """Paired timing of the solutions and of every baseline that works. Returns (per variant, facts)."""
        perturbed = not self.problem.native_signal
        name = "perturbed" if perturbed else "native"
        state = trials.perturbed_weights(self.plan, self.device) if perturbed else self.native
        self.use(name, state)
        self.slots.fill(trials.secret_seed(), None)
        left_out: dict[str, str] = {}
        classes: dict[str, str] = {}
        runners = []
        for subject in [baseline, *timed]:
            try:
                self.load(subject, name, state)
            except SolutionError as error:
                raise _Blamed(subject, error) from error
            for variant in list(subject.variants):
                if subject.trusted:
                    self.progress(f"{self.problem.key}: {variant}")
                    try:
                        classes[variant] = self._baseline_class(subject, variant, name)
                    except SolutionError as error:
                        left_out[variant] = f"{error.code}: {error.detail}"
                        continue
                runners.append(self._runner(subject, variant, name))
        self.progress(f"{self.problem.key}: timing {', '.join(r.name for r in runners)}")
        fresh = lambda: self.slots.fill(trials.secret_seed(), None)  # noqa: E731
        series, status = timing.measure(runners, fresh, self.options.timing_budget_s, warm=self.device.type == "cuda")
        facts = {"status": status, "left_out": left_out, "baseline_classes": classes, "inputs": "native, fresh a block"}
        return {name: s for name, s in series.items() if s.device_ms}, facts

    def _baseline_class(self, subject: Subject, variant: str, kind: str) -> str:
        assert subject.worker is not None
        message = {"op": "run", "variant": variant, "inputs": self.slots.told()}
        answer = subject.worker.ask(message, COMPILE_TIMEOUT_S)
        values = self.compare(subject, answer.get("output")).values()
        subject.worker.ask({"op": "release"}, self.options.timeout_s)
        klass = class_of({kind: [values]}, self.fixture)
        if klass is None:
            raise SolutionRejected("baseline_incorrect", f"rel_l2 {values['rel_l2']:.2g}")
        return klass

    def _runner(self, subject: Subject, variant: str, kind: str) -> timing.Runner:
        worker = subject.worker
        assert worker is not None

        def run(calls: int) -> tuple[list[float], list[float]]:
            message = {"op": "time", "variant": variant, "inputs": self.slots.told(), "calls": calls}
            try:
                answer = worker.ask(message, self.options.timeout_s)
                if not subject.trusted:
                    distance = self.compare(subject, answer.get("output"), self._random_rows())
                    if class_of({kind: [distance.values()]}, self.fixture) is None:
                        raise SolutionRejected("timed_output_wrong", f"rel_l2 {distance.values()['rel_l2']:.2g}")
                worker.ask({"op": "release"}, self.options.timeout_s)
                return timing.times(answer.get("device_ms"), calls), timing.times(answer.get("host_ms"), calls)
            except SolutionError as error:
                raise _Blamed(subject, error) from error

        return timing.Runner(subject.name if not subject.trusted else variant, run)

    def _random_rows(self) -> slice | None:
        if self.rows is None or self.plan.batch is None:
            return None
        start = random.SystemRandom().randrange(0, max(1, self.plan.batch - self.rows + 1))
        return slice(start, min(self.plan.batch, start + self.rows))

    def close(self) -> None:
        """Ends every worker and gives the buffers back."""
        for subject in self.subjects:
            self.end(subject)
        self.slots.close()


def _peak(subject: Subject, device_peak: int | None) -> dict[str, Any]:
    if subject.worker is None or subject.failed in ("timeout", "error"):
        return {"reason": "the worker had ended"}
    with contextlib.suppress(SolutionError):
        return {"solution": subject.worker.ask({"op": "peak"}, 30), "device_over_start_bytes": device_peak}
    return {"reason": "the worker did not answer"}


def evaluate(
    problem: Problem,
    fixture: dict[str, Any],
    solutions: list[tuple[str, Path, str]],
    options: Options,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Judges solutions (name, file, entry) of one problem.

    Returns {"results": one verdict a solution, "baselines", "timing", "ceilings", "seeds", "wall_s"}. A solution's
    fault is a verdict; JudgeError is raised only where the problem, the fixture or the judge itself is at fault.
    """
    begin = time.monotonic()
    cuda = options.device == "cuda"
    watch = memory.DeviceMemory(str(torch.cuda.get_device_properties(0).uuid) if cuda else None)
    watch.start()
    reached = ceilings.measure(torch.device("cuda")) if cuda else None
    subjects = [Subject(name, source, entry, [name]) for name, source, entry in map(_named, solutions)]
    evaluation = Evaluation(problem, fixture, subjects, options, progress)
    planned = trials.make(evaluation.plan)
    try:
        watch.mark()
        evaluation.verify(planned)
        peak = watch.mark()
        for subject in subjects:
            subject.memory = _peak(subject, peak)
        judged = {s.name: verdict.judge(s, fixture) for s in subjects}
        good = [s for s in subjects if judged[s.name]["verdict"] == "correct"]
        series: dict[str, Any] = {}
        facts: dict[str, Any] = {"status": "not_timed"}
        if options.timing and good:
            series, facts = _timed(evaluation, good, judged)
        return {
            "results": [
                verdict.result(problem, s, judged[s.name], series, facts, reached, provenance.labels(s.source))
                for s in subjects
            ],
            "baselines": {n: verdict.baseline(x) for n, x in series.items() if n not in judged},
            "samples_ms": {n: {"device": x.device_ms, "host": x.host_ms} for n, x in series.items()},
            "timing": facts | {"clock": "CUDA events, cold L2" if cuda else "host clock: not a measurement"},
            "ceilings": reached,
            "trials": [{"kind": t.kind, "seed": t.seed} for t in planned],
            "trials_left_out": {k: why for k, why in trials.kinds(evaluation.plan).items() if why},
            "margin": fixture["margin"],
            "wall_s": round(time.monotonic() - begin, 3),
        }
    finally:
        watch.stop()
        evaluation.close()


def _named(solution: tuple[str, Path, str]) -> tuple[str, Path, str]:
    """Keeps a solution apart from what the judge itself calls so: `baseline`, `eager`, `compile_tf32`."""
    name, source, entry = solution
    reserved = name.partition("_")[0] in ("baseline", *Options.baselines)
    return f"{name} (solution)" if reserved else name, source, entry


def _timed(
    evaluation: Evaluation, good: list[Subject], judged: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Times the correct solutions; one that fails meanwhile loses its verdict, and the others are timed again."""
    while good:
        classes = {judged[s.name]["precision_class"] for s in good}
        variants = verdict.baselines(evaluation.options.baselines, evaluation.problem.dtype, classes)
        baseline = Subject("baseline", None, "Model", variants)
        evaluation.subjects.append(baseline)
        evaluation.start(baseline)
        evaluation.loaded.pop("baseline", None)
        if baseline.failed:
            raise JudgeError(f"the baselines of {evaluation.problem.key} do not start", str(baseline.reasons))
        try:
            return evaluation.time(good, baseline)
        except _Blamed as blamed:
            error = blamed.error
            if blamed.subject.trusted:
                raise JudgeError(
                    f"timing of {evaluation.problem.key} failed", f"{error.code}: {error.detail}"
                ) from error
            blamed.subject.fail(error, "timing")
            evaluation.end(blamed.subject)
            judged[blamed.subject.name] = verdict.judge(blamed.subject, evaluation.fixture)
            good = [s for s in good if s is not blamed.subject]
        finally:
            evaluation.end(baseline)
            evaluation.subjects.remove(baseline)
    return {}, {"status": "not_timed"}
