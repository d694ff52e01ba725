"""The face of the judge: a session judges solutions of one problem on one device.

The reference, the GPU's ceilings, the input buffers and the torch baselines are made once and serve every solution:

    with JudgeSession(problem, fixture, options) as session:
        entries = session.check([("mine", Path("mine.py"), "ModelNew")])  # trials and gates, no timing
        result = session.time(["mine"], tier="quick")  # beside the baselines

Only solutions of the latest check have workers. A solution that crashes, hangs or breaks a rule loses its own worker.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import torch

from repro.errors import SolutionError, UsageError
from repro.judge import baselines, verdict
from repro.judge.correctness import alternate_shape, input_cases
from repro.judge.correctness.verification import Evaluation
from repro.judge.gpu import memory
from repro.judge.implementation import Implementation, Options, Progress
from repro.judge.isolation import confinement
from repro.judge.measurement import Measurement
from repro.judge.processes import pool
from repro.judge.processes.wire import Json
from repro.judge.source.bans import bans
from repro.judge.timing import precompile, roofline
from repro.judge.timing.precompile import Ahead
from repro.judge.timing.sampling import Series
from repro.problems.catalogue import Problem
from repro.records.fixture import Fixture
from repro.records.result import JudgeResult, Timing, Trial
from repro.records.session import Checked, CheckTier, Tier
from repro.records.verdict import Reason, Verdict
from repro.system.stopwatch import Clock

CONTROL = "control (eager again)"
# The quick tier: seconds of sampling and most blocks, against eager alone.
QUICK_BUDGET_S, QUICK_BLOCKS = 1.0, 24
# The same of a screening, whose blocks are all gated.
SCREEN_BUDGET_S, SCREEN_BLOCKS = 1.0, 5
# The baselines' workers stay if the GPU has room for this many times inputs and outputs, and for one more worker.
RESTING_ROOM = 3
# Solutions beside each other: on the CPU and at most. A worker has a CUDA context, and its allocator holds OUTPUTS.
CPU_ROOM, MOST_ROOM, CONTEXT_BYTES, OUTPUTS = 8, 12, 1 << 30, 2
NOT_TIMED = Timing(status="not_timed")
Solution = tuple[str, Path, str]  # name, file, entry


class JudgeSession:
    """A warm judge of one problem on one device. Its methods belong to one thread.

    fixture: of this problem at this size. mark: called with `warm` and `timed` before and after timing. single: the
    session judges once and then closes. Baselines then compile while the solutions are verified, and no worker waits
    for a further solution. Raises JudgeError if the fixture belongs to other weights.
    """

    def __init__(
        self,
        problem: Problem,
        fixture: Fixture,
        options: Options,
        progress: Progress = lambda _: None,
        mark: Progress = lambda _: None,
        *,
        single: bool = False,
    ) -> None:
        self.problem, self.fixture, self.options, self.single = problem, fixture, options, single
        self.cuda, self.audited = options.device == "cuda", options.trust == "audited"
        self.candidates: dict[str, Implementation] = {}
        self.judged: dict[str, verdict.Judged] = {}
        self.known: dict[str, Implementation] = {}  # solutions that were checked in full, by name
        self.planned: list[input_cases.Trial] = []  # the trials of the latest check
        self.trusted = [
            Implementation(name, None, "Model", []) for name in baselines.workers(problem.dtype, options.modes)
        ]
        self.control = Implementation(CONTROL, None, "Model", ["eager"], control=True)
        self.compiling: list[Ahead] = []
        self.late: dict[str, str] = {}  # baseline -> why it is left out for good
        self.screened: list[Implementation] = []  # those whose workers a later screening may take over
        self.clock, self.timed = Clock(), Clock()
        self.before_s: dict[str, float] = {}  # seconds by part of earlier timings
        if options.trust != "dev":
            confinement.shield()
        self.watch = memory.DeviceMemory(str(torch.cuda.get_device_properties(0).uuid) if self.cuda else None)
        self.watch.start()
        self.reached = roofline.measure(torch.device("cuda")) if self.cuda else None
        self.clock.lap("ceilings")
        try:
            self.evaluation = Evaluation(problem, fixture, options, progress, mark)
        except BaseException:
            self.watch.stop()
            raise
        self.clock.lap("problem")

    def __enter__(self) -> JudgeSession:
        try:
            if not self.single:
                self._refill()
                self.evaluation.expected.build()
                self.clock.lap("reference")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and free the buffers."""
        self.watch.stop()
        for each in self.compiling:
            each.drop()
        self._end_baselines()
        self.evaluation.workers.end(*self.screened)
        self.evaluation.close()
        if not self.single:
            pool.close()

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self, solutions: Iterable[Solution], tier: CheckTier = "full", keep: Iterable[str] = ()) -> list[Checked]:
        """Judge whether solutions are right, on inputs of fresh secret seeds; return one entry each, without times.

        tier: `screen` looks at a part of the output of one call, to screen many candidates. What it finds correct has
        no verdict of the judge, and only `time(..., "screen")` takes it. Its entry has `bits`, digests of the whole
        output. keep: names whose source is that of their last full check; one that was correct keeps its verdict, and
        gets a worker alone.

        Workers of solutions of an earlier check end. A solution with the name of an earlier one takes its place. Raises
        UsageError if two solutions have one name, and JudgeError for faults of the problem, the fixture or the judge.
        """
        named = list(solutions)
        if len({name for name, _, _ in named}) < len(named):
            raise UsageError("two solutions have one name", ", ".join(name for name, _, _ in named))
        kept = {n for n in keep if tier == "full" and n in self.known and self._correct(self.known[n])}
        found = {n: self.known[n] if n in kept else _implementation(n, source, entry) for n, source, entry in named}
        shared = tier == "screen" and self.options.shared and self.audited
        self._replace(list(found.values()), [s for s in found.values() if not s.failed] if shared else [])
        try:
            self._verify([s for s in found.values() if not s.failed], tier)
        except BaseException:
            self.evaluation.workers.end(*found.values())
            raise
        self.candidates |= found
        self.known |= found if tier == "full" else {}
        self.judged |= {s.name: verdict.judge(s, self._fixture(tier)) for s in found.values()}
        # they are not used any more
        self.evaluation.workers.end(*[s for s in found.values() if self.judged[s.name].verdict != "correct"])
        self._refill()
        plain = [entry.to_json() for entry in self._entries(list(found), {}, NOT_TIMED)]
        if tier == "screen":
            plain = [each | {"bits": s.bits} for each, s in zip(plain, found.values(), strict=True)]
        return [Checked.model_validate(each) for each in plain]

    def _replace(self, new: list[Implementation], heirs: list[Implementation]) -> None:
        """Put new solutions in the place of those of the latest check, whose workers end.

        heirs: those that take over workers of earlier screenings; further ones of these workers rest meanwhile.
        """
        known = [s for s in self.screened if s.worker is not None]
        for old, heir in zip(known, heirs, strict=False):
            self.evaluation.workers.pass_on(old, heir)
        resting = known[len(heirs) :] if heirs else []
        self.evaluation.workers.end(*[s for s in (*self.evaluation.workers.solutions, *known) if s not in resting])
        for each in resting:
            self.evaluation.workers.rebind(each)  # its name may be that of a new one
            self._stop(each)
        self.screened = [*heirs, *resting]
        self.evaluation.workers.solutions = new
        self.clock.lap("ending")

    def _correct(self, solution: Implementation) -> bool:
        return verdict.judge(solution, self.fixture).verdict == "correct"

    def _fixture(self, tier: CheckTier) -> Fixture:
        """Return the fixture with the trials of a tier."""
        ran = {trial.kind for trial in self.planned}
        trials = {kind: facts for kind, facts in self.fixture.trials.items() if tier == "full" or kind in ran}
        return self.fixture.model_copy(update={"trials": trials})

    def _verify(self, running: list[Implementation], tier: CheckTier) -> None:
        """Run the trials of the solutions that were not rejected by their source and have none yet."""
        evaluation = self.evaluation
        self.planned = input_cases.make(evaluation.plan, fixture=self.fixture)
        if tier == "screen":
            self.planned = [next(trial for trial in self.planned if trial.decides)]
        self.clock.lap("problem")
        self.watch.mark()
        if self.single:
            if running and self.options.timing and self.cuda and self.audited and precompile.room(evaluation):
                precompile.begin(evaluation, self.trusted, self.compiling)
                evaluation.trials.noted = lambda: precompile.foresee(evaluation, self.compiling)
            evaluation.expected.build()
            self.clock.lap("reference")
        evaluation.workers.start(*running)
        self._refill()
        self.clock.lap("workers")
        if tier == "screen" or (self.cuda and not self.single and len(running) > 1):
            evaluation.trials.compile_all(running, decides=tier == "screen")
            self.clock.lap("first calls")
        due = [s for s in running if not s.distances]
        evaluation.trials.verify(self.planned, due, screening=tier == "screen")
        peak = self.watch.mark()
        for implementation in due:
            implementation.memory = _peak(implementation, peak)
        if tier == "full":
            alternate_shape.look(evaluation, self.planned)
        self.clock.lap("trials")

    # -- timing -------------------------------------------------------------------------------------------------------

    def time(self, names: Iterable[str], tier: Tier = "full") -> JudgeResult:
        """Time the correct ones of some checked solutions, beside each other and the baselines.

        screen: a few calls beside each other, which nothing checks. quick: seconds, against eager torch alone, at its
        default precision and at the solutions'. full: until the times are known, against every baseline of the
        session's options. A solution that fails here loses its verdict.

        Raises UsageError for a solution without a verdict, and JudgeError if the baselines fail.
        """
        wanted = list(names)
        for name in wanted:
            solution = self.candidates.get(name)
            if solution is None or (tier != "screen" and solution is not self.known.get(name)):
                raise UsageError(f"{name} has no verdict in this session", "", f"Check it first, in the tier {tier}.")
        good = [s for name in wanted if self.judged[(s := self.candidates[name]).name].verdict == "correct"]
        resting = self.screened if tier != "screen" else []
        self.evaluation.workers.end(*[s for s in (*self.evaluation.workers.solutions, *resting) if s not in good])
        self.evaluation.workers.solutions = good
        options = {"screen": _screen, "quick": _quick, "full": lambda given: given}[tier](self.options)
        self._await_baselines(good if tier == "full" else [])
        for name, seconds in self.timed.laps.items():
            self.before_s[name] = self.before_s.get(name, 0.0) + seconds
        self.timed = Clock()
        series: dict[str, Series] = {}
        timing = NOT_TIMED
        if good:
            control = self.control if options.controlled else None
            measurement = Measurement(
                self.evaluation, good, self.judged, self.trusted, control, options, self.late, self.timed
            )
            try:
                series, timing = measurement.run()
            finally:
                self._rest()
        self.clock.lap("timing")
        return self.result(wanted, series, timing)

    def result(self, names: list[str], series: dict[str, Series], timing: Timing) -> JudgeResult:
        """Return the entries of some checked solutions with the times of `series`, and those of the baselines."""
        ours = {self.candidates[name].name for name in names} | {CONTROL}
        told = {
            "compile_ahead_s": {name: s for each in self.compiling for name, s in each.spent_s.items()},
            "clock": "CUDA events behind a gate, cold L2" if self.cuda else "host: not a measurement",
        }
        return JudgeResult(
            results=self._entries(names, series, timing),
            baselines={n: verdict.baseline(x) for n, x in series.items() if n not in ours},
            samples_ms={n: x.record() for n, x in series.items()},
            timing=timing.model_copy(update=told),
            ceilings=self.reached,
        )

    def _entries(self, names: list[str], series: dict[str, Series], timing: Timing) -> list[Verdict]:
        found = [self.candidates[name] for name in names]
        return [
            verdict.result(self.problem, s, self.judged[s.name], series, timing, self.reached, self.options.trust)
            for s in found
        ]

    def _await_baselines(self, good: list[Implementation]) -> None:
        """Wait for the compilations that a timing of these solutions needs, and end the others."""
        wanted, verified = precompile.wanted(self.evaluation, good), time.monotonic()
        for ahead in self.compiling:
            if ahead.implementation.name not in wanted:
                ahead.drop()
        for ahead in self.compiling:
            if ahead.implementation.name in wanted:
                ahead.wait(verified)
            self.late |= ahead.why
        self.clock.lap("waiting for torch.compile")

    def room(self) -> int:
        """Return how many solutions have room beside each other, at most MOST_ROOM."""
        if not self.cuda:
            return CPU_ROOM
        slots = self.evaluation.slots
        each = CONTEXT_BYTES + slots.staging_bytes + OUTPUTS * slots.output_bytes
        return int(max(2, min(MOST_ROOM, torch.cuda.mem_get_info()[0] // each)))

    def spent_s(self) -> dict[str, float]:
        """Return seconds by part since the session began: those of the session, and those of trials and timings."""
        trials = {f"trials: {name}": s for name, s in self.evaluation.trials.parts.laps.items()}
        timings = {name: self.before_s.get(name, 0.0) + self.timed.laps.get(name, 0.0)
                   for name in {*self.before_s, *self.timed.laps}}  # fmt: skip
        return self.clock.laps | trials | {f"timing: {name}": s for name, s in sorted(timings.items())}

    # -- workers that outlive a solution ------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Let the baselines' workers wait for the next timing without memory that they can allocate again.

        They end if the session does, or if they would leave too little memory for further solutions.
        """
        self.timed.lap()
        if self.single or (self.cuda and not precompile.room(self.evaluation, RESTING_ROOM, 1)):
            self._end_baselines()
        else:
            for implementation in (*self.trusted, self.control):
                if implementation.worker is not None:
                    self._stop(implementation, release=True)
        self.timed.lap("ending")

    def _stop(self, implementation: Implementation, *, release: bool = False) -> None:
        """Stop a worker until it is used again; end it if it cannot be stopped. release: it gives up its memory."""
        try:
            if release:
                implementation.ask({"op": "release"}, self.options.timeout_s)
            if implementation.worker is not None:
                implementation.worker.stop()
        except SolutionError:
            self.evaluation.workers.end(implementation)

    def _end_baselines(self) -> None:
        self.evaluation.workers.end(*self.trusted, self.control)

    def _refill(self) -> None:
        """Start a worker for the next solution, which gets ready while others are judged. The CPU's start at once."""
        if self.cuda and self.audited and not self.single:
            pool.prepare(Counter({pool.PLAIN: 1}), self.options.device)


def evaluate(
    problem: Problem,
    fixture: Fixture,
    solutions: list[Solution],
    options: Options,
    progress: Progress = lambda _: None,
    mark: Progress = lambda _: None,
) -> JudgeResult:
    """Judge solutions of one problem in a session of their own: check all, and time the correct ones in full.

    A solution's fault becomes its verdict. JudgeError is raised only for faults of the problem, the fixture or the
    judge.
    """
    clock = Clock()
    names = [name for name, _, _ in solutions]
    if fixture.refused:
        return _whole(_unjudged(problem, fixture, solutions, options), fixture, clock, None)
    with JudgeSession(problem, fixture, options, progress, mark, single=True) as session:
        session.check(solutions)
        found = session.time(names) if options.timing else session.result(names, {}, NOT_TIMED)
        return _whole(found, fixture, clock, session)


def _whole(found: JudgeResult, fixture: Fixture, clock: Clock, session: JudgeSession | None) -> JudgeResult:
    """Return a result with what the fixture and the session add. session: None if nothing was run."""
    more = {
        "trials": [Trial(kind=t.kind, seed=t.seed) for t in session.planned] if session else [],
        "trials_left_out": fixture.trials_left_out,
        "margin": fixture.margin,
        "margins": fixture.margins,
        "spent_s": session.clock.laps if session else {},
        "trials_spent_s": session.evaluation.trials.spent_s if session else {},
        "trials_parts_spent_s": session.evaluation.trials.parts.laps if session else {},
        "timing_spent_s": session.timed.laps if session else {},
        "wall_s": clock.total(),
    }
    return found.model_copy(update=more)


def _unjudged(problem: Problem, fixture: Fixture, solutions: list[Solution], options: Options) -> JudgeResult:
    """Return the verdicts on a problem that cannot tell a cheat from the truth: nothing is run."""
    judged = verdict.unjudgeable(fixture)
    timing = NOT_TIMED.model_copy(update={"compile_ahead_s": {}, "clock": "none: nothing was timed"})
    found = [_implementation(*each) for each in solutions]
    results = [verdict.result(problem, s, judged, {}, timing, None, options.trust) for s in found]
    return JudgeResult(results=results, baselines={}, samples_ms={}, timing=timing, ceilings=None)


def _quick(options: Options) -> Options:
    budget_s, blocks = min(QUICK_BUDGET_S, options.timing_budget_s), min(QUICK_BLOCKS, options.max_blocks)
    return options.but(modes=["eager"], passes=[], timing_budget_s=budget_s, max_blocks=blocks)


def _screen(options: Options) -> Options:
    return options.but(modes=[], passes=[], timing_budget_s=SCREEN_BUDGET_S, max_blocks=SCREEN_BLOCKS, screening=True)


def _implementation(name: str, source: Path, entry: str) -> Implementation:
    """Return a solution, rejected if its source uses banned names.

    One whose name the judge uses itself (`baseline`, `eager`, `compile_tf32`) is renamed.
    """
    reserved = ("baseline", "control", "eager", "compile", "reduce", "max")
    ours = f"{name} (solution)" if name.replace(" ", "_").partition("_")[0] in reserved else name
    implementation = Implementation(ours, source, entry, [ours])
    if banned := bans(source):
        implementation.failed = "rejected"
        implementation.reasons += [Reason(code="banned", detail=detail, trial="source") for detail in banned]
    return implementation


def _peak(implementation: Implementation, device_peak: int | None) -> Json:
    if implementation.worker is None or implementation.failed in ("timeout", "error"):
        return {"reason": "the worker had ended"}
    with contextlib.suppress(SolutionError):
        return {"solution": implementation.ask({"op": "peak"}, 30), "device_over_start_bytes": device_peak}
    return {"reason": "the worker did not answer"}
