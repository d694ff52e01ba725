"""The face of the judge: a session judges solutions of one problem on one device.

The reference, the GPU's ceilings, the input buffers and the torch baselines are made once and serve every solution:

    with JudgeSession(problem, fixture, options) as session:
        entries = session.check([("mine", Path("mine.py"), "ModelNew")])  # trials and gates, no timing
        result = session.time(["mine"], tier="quick")  # beside the baselines

Only solutions of the latest check have workers. A solution that crashes, hangs or breaks a rule loses its own worker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from repro.errors import SolutionError, UsageError
from repro.judge import baselines, sanitizer, verdict
from repro.judge.correctness import input_cases, where
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation, Options, Progress
from repro.judge.isolation import confinement
from repro.judge.measurement import Measured, Measurement
from repro.judge.processes import pool
from repro.judge.source.bans import bans
from repro.judge.timing import intervals, precompile, roofline, speedups
from repro.judge.timing.precompile import Ahead
from repro.judge.timing.sampling import AllSeries
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
_RESTING_ROOM = 3
# Solutions beside each other: on the CPU and at most. A worker has a CUDA context, and its allocator holds OUTPUTS.
CPU_ROOM, MOST_ROOM, CONTEXT_BYTES, OUTPUTS = 8, 12, 1 << 30, 2
# Loads after the first, in opposite order in turn; an even number, so that the last has the given order.
_FURTHER_LOADS = 4
_NOT_TIMED = Timing(status="not_timed")
Solution = tuple[str, Path, str]  # name, file, entry


class _Baselines:
    """The workers of the torch baselines and of the A/A control, which outlive a solution.

    compiling: those that compile while solutions are verified. late: baseline -> why it is left out for good.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        names = baselines.workers(evaluation.problem.dtype, tuple(evaluation.options.modes))
        self.workers = [Implementation(name, None, "Model", []) for name in names]
        self.control = Implementation(CONTROL, None, "Model", ["eager"], control=True)
        self.compiling: list[Ahead] = []
        self.beside = ThreadPoolExecutor(1)
        self.late: dict[str, str] = {}

    def precompile(self) -> None:
        """Begin to compile on a GPU with room for it, and start the control's worker. Each distance of a solution shows
        what else is needed."""
        evaluation = self.evaluation
        if evaluation.slots.device.type == "cuda" and precompile.room(evaluation):
            precompile.begin(evaluation, self.workers, self.compiling)
            evaluation.trials.noted = lambda: precompile.foresee(evaluation, self.compiling)
            if evaluation.options.controlled:
                evaluation.workers.seat(self.control)  # only this thread, with the CUDA context, can share memory
                self.beside.submit(evaluation.workers.start, self.control)
            self.beside.submit(intervals.student, 0.5, 1)  # its first call imports for long

    def wait(self, good: list[Implementation]) -> None:
        """Wait for the compilations that a timing of these solutions needs, and end the others."""
        wanted, verified = precompile.wanted(self.evaluation, good), time.monotonic()
        for worker in self.compiling:
            if worker.implementation.name not in wanted:
                worker.drop()
        for worker in self.compiling:
            if worker.implementation.name in wanted:
                worker.wait(verified)
            self.late |= worker.why
        self.beside.shutdown()

    def rest(self, *, ends: bool) -> None:
        """Let the workers wait for the next timing without memory that they can allocate again.

        They end if the session `ends`, or if they would leave too little memory for further solutions.
        """
        cuda = self.evaluation.slots.device.type == "cuda"
        if ends or (cuda and not precompile.room(self.evaluation, _RESTING_ROOM, 1)):
            self.end()
        else:
            for implementation in (*self.workers, self.control):
                if implementation.worker is not None:
                    self.evaluation.workers.rest(implementation, release=True)

    def end(self) -> None:
        """End the workers."""
        self.evaluation.workers.end(*self.workers, self.control)

    def close(self) -> None:
        """End the workers, and compilations that go on."""
        self.beside.shutdown()
        for worker in self.compiling:
            worker.drop()
        self.end()


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
        self.screened: list[Implementation] = []  # those whose workers a later screening may take over
        self.clock, self.timed = Clock(), Clock()
        if sanitizer.TRIAL in options.checks:
            sanitizer.program()  # before anything is judged
        if options.trust != "dev":
            confinement.shield()
        self.reached = roofline.measure(torch.device("cuda")) if self.cuda else None
        self.clock.lap("ceilings")
        self.evaluation = Evaluation(problem, fixture, options, progress, mark)
        self.baselines = _Baselines(self.evaluation)
        self.clock.lap("problem")

    def __enter__(self) -> JudgeSession:
        try:
            if not self.single:
                self._refill()
                self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and free the buffers."""
        self.baselines.close()
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
        names = [name for name, _, _ in named]
        if len({*names}) < len(names):
            raise UsageError("two solutions have one name", ", ".join(names))
        checked = self._chosen(named, set(keep) if tier == "full" else set())
        new = list(checked.values())
        running = [solution for solution in new if not solution.failed]
        self._replace(new, running if tier == "screen" and self.options.shared and self.audited else [])
        try:
            self._verify(running, tier)
        except BaseException:
            self.evaluation.workers.end(*new)
            raise
        self._judge(checked, tier)
        self.clock.lap("where it is wrong")
        self._refill()
        entries = zip(self._entries(list(checked), {}, _NOT_TIMED), new, strict=True)
        return [
            Checked.model_validate(entry.to_json() | ({"bits": solution.bits} if tier == "screen" else {}))
            for entry, solution in entries
        ]

    def _chosen(self, named: list[Solution], keep: set[str]) -> dict[str, Implementation]:
        """Return solutions by name: new ones, and those to keep that were correct."""
        kept = {name: self.known[name] for name in keep if name in self.known and self._stays_correct(name)}
        return {
            name: kept[name] if name in kept else _implementation(name, source, entry) for name, source, entry in named
        }

    def _judge(self, checked: dict[str, Implementation], tier: CheckTier) -> None:
        """Record the verdicts of checked solutions; end the workers of those that are not correct."""
        self.candidates |= checked
        self.known |= checked if tier == "full" else {}
        fixture = self._fixture(tier)
        self.judged |= {solution.name: verdict.judge(solution, fixture) for solution in checked.values()}
        wrong = [solution for solution in checked.values() if not self._is_correct(solution)]
        for solution in wrong if tier == "full" else []:
            solution.where = where.look(self.evaluation, self.planned, solution, self.judged[solution.name].reasons)
        self.evaluation.workers.end(*wrong)

    def _replace(self, new: list[Implementation], heirs: list[Implementation]) -> None:
        """Put new solutions in the place of those of the latest check, whose workers end.

        heirs: those that take over workers of earlier screenings; further ones of these workers rest meanwhile.
        """
        workers = self.evaluation.workers
        screened = [solution for solution in self.screened if solution.worker is not None]
        for old, heir in zip(screened, heirs, strict=False):
            workers.pass_on(old, heir)
        resting = screened[len(heirs) :] if heirs else []
        self._end_but(resting, screened)
        for solution in resting:
            workers.rebind(solution)  # its name may be that of a new one
            workers.rest(solution)
        self.screened = [*heirs, *resting]
        workers.solutions = new
        self.clock.lap("ending")

    def _end_but(self, kept: list[Implementation], more: list[Implementation]) -> None:
        """End the workers of the solutions of the latest check, and of `more`, but keep some."""
        workers = self.evaluation.workers
        workers.end(*[solution for solution in (*workers.solutions, *more) if solution not in kept])

    def _stays_correct(self, name: str) -> bool:
        """Return whether a solution's last full check found it correct, whatever a timing said since."""
        return verdict.judge(self.known[name], self.fixture).verdict == "correct"

    def _is_correct(self, solution: Implementation) -> bool:
        return self.judged[solution.name].verdict == "correct"

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
            self.planned = [next(trial for trial in self.planned if trial.judged)]
        self.clock.lap("problem")

        def build() -> None:
            if self.single:
                self._build(precompiles=bool(running) and self.options.timing and self.audited)

        evaluation.workers.start(*running, meanwhile=build)
        self._refill()
        self.clock.lap("workers")
        if tier == "screen" or (self.cuda and not self.single and len(running) > 1):
            evaluation.trials.compile_all(running, decides=tier == "screen")
            self.clock.lap("first calls")
        due = [solution for solution in running if not solution.distances]
        self.planned += evaluation.trials.verify(self.planned, due, screening=tier == "screen")
        if tier == "full":
            self._sanitize(due)
        self.clock.lap("trials")

    def _sanitize(self, solutions: list[Implementation]) -> None:
        """Run compute-sanitizer over the correct ones, where that is asked for."""
        for solution in solutions if sanitizer.TRIAL in self.options.checks else ():
            if verdict.judge(solution, self.fixture).verdict == "correct":
                self.evaluation.progress(f"{solution.name}: sanitizer")
                try:
                    with self.evaluation.workers.gpu.trial():
                        sanitizer.check(self.problem, solution, self.options.device)
                except SolutionError as error:
                    solution.fail(error, sanitizer.TRIAL)

    def _build(self, *, precompiles: bool = False) -> None:
        """Build the reference, after the baselines' compilation began."""
        if precompiles:
            self.baselines.precompile()
        self.evaluation.expected.build()
        self.clock.lap("reference")

    # -- timing -------------------------------------------------------------------------------------------------------

    def time(self, names: Iterable[str], tier: Tier = "full") -> JudgeResult:
        """Time the correct ones of some checked solutions, beside each other and the baselines.

        screen: a few calls beside each other, which nothing checks. quick: seconds, against eager torch alone, at its
        default precision and at the solutions'. full: until the times are known, against every baseline of the
        session's options. A solution that fails here loses its verdict.

        Raises UsageError for a solution without a verdict, and JudgeError if the baselines fail.
        """
        wanted = list(names)
        good = [solution for solution in self._candidates(wanted, tier) if self._is_correct(solution)]
        self._end_but(good, self.screened if tier != "screen" else [])
        self.evaluation.workers.solutions = good
        self.baselines.wait(good if tier == "full" else [])
        self.clock.lap("waiting for torch.compile")
        self.timed.lap()
        series, timing = self._measured(good, _TIERS[tier](self.options)) if good else ({}, _NOT_TIMED)
        self.clock.lap("timing")
        return self.result(wanted, series, timing)

    def _candidates(self, names: list[str], tier: Tier) -> list[Implementation]:
        """Return solutions by name. Raises UsageError for one without a verdict of this tier."""
        for name in names:
            solution = self.candidates.get(name)
            if solution is None or (tier != "screen" and solution is not self.known.get(name)):
                raise UsageError(f"{name} has no verdict in this session", "", f"Check it first, in the tier {tier}.")
        return [self.candidates[name] for name in names]

    def _measured(self, good: list[Implementation], options: Options) -> Measured:
        """Time correct solutions; afterwards the baselines' workers rest."""
        baselines = self.baselines
        control = baselines.control if options.controlled else None
        measurement = Measurement(
            self.evaluation, good, self.judged, baselines.workers, control, options, baselines.late, self.timed
        )
        try:
            return measurement.run()
        finally:
            self.timed.lap()
            baselines.rest(ends=self.single)
            self.timed.lap("ending")

    def result(self, names: list[str], series: AllSeries, timing: Timing) -> JudgeResult:
        """Return the entries of some checked solutions with the times of `series`, and those of the baselines."""
        others = {self.candidates[name].name for name in names} | {CONTROL}
        clock = "CUDA events behind a gate, cold L2" if self.cuda else "host: not a measurement"
        return JudgeResult(
            results=self._entries(names, series, timing),
            baselines={name: verdict.baseline(times) for name, times in series.items() if name not in others},
            samples_ms={name: times.record() for name, times in series.items()},
            timing=timing.model_copy(update={"clock": clock}),
            ceilings=self.reached,
        )

    def _entries(self, names: list[str], series: AllSeries, timing: Timing) -> list[Verdict]:
        return [
            verdict.result(self.problem, solution, self.judged[solution.name], series, timing, self.reached,
                           self.options.trust)
            for solution in (self.candidates[name] for name in names)
        ]  # fmt: skip

    def room(self) -> int:
        """Return how many solutions have room beside each other, at most MOST_ROOM."""
        if not self.cuda:
            return CPU_ROOM
        slots = self.evaluation.slots
        one = CONTEXT_BYTES + slots.staging_bytes + OUTPUTS * slots.output_bytes
        return int(max(2, min(MOST_ROOM, torch.cuda.mem_get_info()[0] // one)))

    def spent_s(self) -> dict[str, float]:
        """Return seconds by part since the session began: those of the session, and those of trials and timings."""
        return self.clock.laps | {
            f"{of}: {name}": seconds
            for of, laps in (("trials", self.evaluation.trials.parts.laps), ("timing", self.timed.laps))
            for name, seconds in laps.items()
        }

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
    facts = {
        "trials_left_out": fixture.trials_left_out, "margin": fixture.margin, "margins": fixture.margins,
    }  # fmt: skip
    if fixture.refused:
        result = _unjudged(problem, fixture, solutions, options)
        return result.model_copy(update=facts | {"wall_s": clock.total()})
    with JudgeSession(problem, fixture, options, progress, mark, single=True) as session:
        session.check(solutions)
        names = [name for name, _, _ in solutions]
        result = over_loads(session, names) if options.timing else session.result(names, {}, _NOT_TIMED)
        facts["trials"] = [Trial(kind=trial.kind, seed=trial.seed) for trial in session.planned]
        facts["spent_s"] = session.spent_s()
        return result.model_copy(update=facts | {"wall_s": clock.total()})


def over_loads(session: JudgeSession, names: list[str]) -> JudgeResult:
    """Time solutions; with `reloads`, again in fresh workers, unless the first load shows all as SAME.

    With loads that scatter by 0.5 % this passes a kernel that is 2 % slower in 1 % of cases; by 1 %, in 12 %.
    """
    loads = []
    result = session.time(names)
    for _ in range(_FURTHER_LOADS) if session.options.reloads and _differ(result) else ():
        loads.append(result)
        session.evaluation.workers.end(*session.candidates.values())
        names.reverse()
        result = session.time(names)
    return result.model_copy(update={"loads": loads}) if loads else result


def _differ(result: JudgeResult) -> bool:
    """Return whether a measured solution may differ from the first one by more than SAME."""
    names = [each.solution for each in result.results if each.verdict == "correct" and each.measurement]
    ratios = (speedups.of_load(result, names[0], name) for name in names[1:])
    return any(speedups.word(ratio, speedups.SAME) != "SAME" for ratio in ratios)


def _unjudged(problem: Problem, fixture: Fixture, solutions: list[Solution], options: Options) -> JudgeResult:
    """Return the verdicts on a problem that cannot tell a cheat from the truth: nothing is run."""
    judged = verdict.unjudgeable(fixture)
    timing = Timing(clock="none: nothing was timed")
    results = [
        verdict.result(problem, _implementation(*solution), judged, {}, timing, None, options.trust)
        for solution in solutions
    ]
    return JudgeResult(results=results, timing=timing)


def _quick(options: Options) -> Options:
    budget_s, blocks = min(QUICK_BUDGET_S, options.timing_budget_s), min(QUICK_BLOCKS, options.max_blocks)
    return options.but(modes=["eager"], passes=[], timing_budget_s=budget_s, max_blocks=blocks)


def _screen(options: Options) -> Options:
    return options.but(modes=[], passes=[], timing_budget_s=SCREEN_BUDGET_S, max_blocks=SCREEN_BLOCKS, screening=True)


_TIERS: dict[Tier, Callable[[Options], Options]] = {"screen": _screen, "quick": _quick, "full": lambda options: options}


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
