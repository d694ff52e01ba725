"""The timing of an evaluation: baselines, an A/A control and the correct solutions, one call at a time.

A timed call runs so:
1. The worker launches the call behind a gate at which the GPU waits. Then it is stopped, as all other workers are.
2. The judge makes new inputs, flushes the L2 from its own process and checks that the GPU is idle
   (`l2_flush_and_idle.py`).
3. The judge reads its clock, resumes that one worker and opens the gate. The worker's answer ends the call's clock.
4. A second clock runs until the worker has sealed the output.
5. The judge compares one secret row of the output with the reference, and occasionally the whole output.

Work that a solution launches early may wait, but there is nothing to compute from before the clock runs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from repro.errors import SolutionDied, SolutionError, SolutionRejected
from repro.judge import baselines
from repro.judge.correctness import input_cases
from repro.judge.correctness.comparison import meets
from repro.judge.correctness.distance import Values, at, named, of_row
from repro.judge.correctness.input_cases import secret_seed
from repro.judge.correctness.verification import Evaluation
from repro.judge.gpu.commitment_check import Seal
from repro.judge.implementation import Implementation, Options, Restless, moved
from repro.judge.processes.wire import Json
from repro.judge.timing import compiled, sampling, speedups
from repro.judge.timing.l2_flush_and_idle import BUSY_TRIES, Idle
from repro.judge.timing.precompile import COMPILE_TIMEOUT_S
from repro.judge.timing.sampling import AllSeries, Block, Excesses, Runner, Sample, Series, Turns
from repro.judge.timing.timed_call import Call, Launching
from repro.problems.meta import liberties
from repro.records.options import PASSES
from repro.records.result import NOT_REQUESTED, Timing
from repro.system.stopwatch import Clock

# One in this many timed outputs is compared whole, by chance, and a secret one of each group of this size. Of the
# others one row is compared. The first whole comparison is in the first cycle, which runs whatever the budget.
_WHOLE_EVERY, _WHOLE_EVERY_LARGE, _LARGE_BYTES = 8, 20, 512 << 20
# Blocks of the baselines alone, after all solutions have ended, and how much faster they may be then.
_ALONE_BLOCKS, _DISTURBED = 8, sampling.HELD_UP
DISTURBED_CODE = "baseline_disturbed"
# Reasons with which a worker has ended.
_ENDED = ("timeout", "worker_exited", "segfault", "killed")
# Workers keep their allocators' caches between calls if all memory in use is below this share of the GPU's.
_KEEP_SHARE = 0.75


class Blamed(Exception):
    """A failure while timing, with the implementation that caused it.

    marginal: the excesses of a solution whose clocks disagree slightly; it is measured again in a new process. also:
    failures of the same kind in the same measurement.
    """

    def __init__(self, implementation: Implementation, error: SolutionError, marginal: Excesses | None = None) -> None:
        super().__init__(error.code)
        self.implementation, self.error, self.marginal = implementation, error, marginal
        self.also: list[Blamed] = []


@dataclass
class Experiment:
    """One timing of the correct solutions against the baselines.

    verified: the solutions' classes. before: excesses of solutions that are measured again because their clocks
    disagreed slightly.
    """

    evaluation: Evaluation
    solutions: list[Implementation]
    verified: Mapping[str, str]
    baselines: list[Implementation]
    control: Implementation | None
    clock: Clock
    before: dict[str, Excesses]
    options: Options

    def __post_init__(self) -> None:
        evaluation, self.slots, self.device = self.evaluation, self.evaluation.slots, self.evaluation.slots.device
        self.cuda = self.device.type == "cuda"
        self.classes: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.whole = {s.name: Turns() for s in self.solutions}
        self.busy_s = 0.0
        self.idle = Idle(self.device, watched=self.options.trust != "dev")
        self.launching = Launching(self.idle, self.slots, self.options.timeout_s, held=self.options.trust != "dev")
        self.keep = True
        self.series: AllSeries = {}  # what was measured, also if the measurement is discarded later
        self.dims = 0 if evaluation.expected.shape.rows is None else evaluation.problem.batch_dims
        perturbed = not evaluation.problem.native_signal
        self.state = evaluation.expected.use(perturbed)
        self.kind = evaluation.fixture.timed or self.state.name  # published inputs are named like their weights
        self.others = input_cases.others(evaluation.plan, evaluation.fixture, self.kind)
        random.SystemRandom().shuffle(self.others)

    @property
    def audited(self) -> bool:
        """Return whether everything is measured that a verdict may rest on."""
        return self.cuda and self.options.trust == "audited"

    @property
    def everyone(self) -> list[Implementation]:
        """Return baselines, control and solutions."""
        return [*self.baselines, *filter(None, [self.control]), *self.solutions]

    def _stop(self, but: Implementation | None = None) -> None:
        for implementation in self.everyone:
            if implementation is not but and implementation.worker is not None:
                implementation.worker.stop()

    # -- before ---------------------------------------------------------------------------------------------------

    def prepare(self) -> list[Runner]:
        """Load weights into all workers; compile and classify the baselines. Return the runners."""
        for implementation in self.everyone:
            self._prepared(implementation)
        self.clock.lap("weights")
        runners = []
        for implementation in list(self.baselines):
            for variant in implementation.variants:
                if variant not in implementation.classes:  # else its worker ran it in an earlier measurement
                    self._classify(implementation, variant)
                if variant in implementation.classes:
                    self.classes[variant] = implementation.classes[variant]
                    runners.append(Runner(variant, self._run(implementation, variant)))
            if implementation.worker is None:
                self.baselines.remove(implementation)
            else:
                self._prepared(implementation)  # again, since it may have compiled
        self.clock.lap("baselines")
        if "eager" not in self.classes:
            self.control = None  # there is nothing to compare it with; `left_out` has the reason
        for implementation in self.everyone[len(self.baselines) :]:
            run, control = self._run(implementation, implementation.variants[0]), implementation.control
            runners.append(Runner(implementation.name, run, candidate=not control, control=control))
        if self.cuda:
            self._settle()
        self.clock.lap("settling")
        return runners

    def _prepared(self, implementation: Implementation) -> None:
        try:
            self.evaluation.workers.load(implementation, self.state)
            implementation.ask({"op": "prepare"}, self.options.timeout_s)
        except SolutionError as error:
            raise Blamed(implementation, error) from error

    def _classify(self, implementation: Implementation, variant: str) -> None:
        """Compile and run a baseline, and record its precision class. If it fails, record why it is left out.

        Raises Blamed if the worker ended, except for max_autotune, and if a solution ran or the inputs changed.
        """
        evaluation = self.evaluation
        evaluation.progress(f"{evaluation.problem.key}: {variant}")
        self._others(implementation)
        stress = input_cases.stress_of(evaluation.plan, self.kind)
        self.slots.fill(secret_seed(), stress)  # fresh inputs, which no solution has seen or changed
        tuned = baselines.split(variant)[0] == baselines.TUNED
        timeout_s = self.options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S
        try:
            implementation.classes[variant] = compiled.first_call(
                evaluation, implementation, variant,
                lambda: evaluation.comparison.class_of_call(implementation, variant, self.kind, timeout_s),
            )  # fmt: skip
        except SolutionError as error:
            self.left_out[variant] = f"{error.code}: {error.detail}"
            if error.verdict in ("timeout", "error") and error.code in _ENDED:
                evaluation.workers.end(implementation)
                if not tuned:
                    raise Blamed(implementation, error) from error
        self._others(implementation)
        if not self._intact(implementation):
            detail = f"the inputs changed while the judge prepared {variant} on them"
            raise Blamed(self.solutions[0], SolutionRejected(DISTURBED_CODE, detail))

    def _settle(self) -> None:
        """Measure a flush on an idle GPU, and decide whether all workers may keep their memory."""
        self._stop()
        self.idle.settle()
        free, total = torch.cuda.mem_get_info()
        # Without its cache a worker must allocate outputs and workspace again at every call.
        self.keep = free > (1 - _KEEP_SHARE) * total

    # -- one call -------------------------------------------------------------------------------------------------

    def _kind(self, block: Block) -> str:
        """Return the trial whose inputs a block uses: the one that is timed, or in turn another."""
        if block.condition != "other" or not self.others:
            return self.kind
        return self.others[block.number // sampling.CYCLE % len(self.others)]

    def _run(self, implementation: Implementation, variant: str) -> Callable[[Block], Sample]:
        def run(block: Block) -> Sample:
            try:
                return self._call(implementation, variant, block)
            except SolutionError as error:
                raise Blamed(implementation, error) from error
            except torch.cuda.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                detail = f"the solution left no memory on the GPU to judge it: {error}"
                raise Blamed(implementation, SolutionDied("judge_out_of_memory", detail)) from error

        return run

    def _call(self, implementation: Implementation, variant: str, block: Block) -> Sample:
        worker, kind = implementation.worker, self._kind(block)
        assert worker is not None
        call, early_ms = self._ready(implementation, variant, kind, gated=block.condition != "open")
        if not worker.rested() and not implementation.trusted:
            raise Restless(implementation)
        seal = Seal(self.dims, self.slots.staging_bytes)
        answer, wall_ms = call.go()
        sealed = implementation.ask({"op": "seal", "key": seal.key.hex()}, self.options.timeout_s)
        self.busy_s = time.perf_counter() - call.begin
        sample = self._sample(implementation, call, answer, wall_ms, early_ms)
        self._others(implementation)
        implementation.check_modes(variant, answer.get("modes"))
        seal.roots = sealed.get("roots")
        self._check(implementation, kind, seal)
        if not self.keep:
            implementation.ask({"op": "release"}, self.options.timeout_s)
        worker.stop()
        return sample

    def _ready(
        self, implementation: Implementation, variant: str, kind: str, *, gated: bool
    ) -> tuple[Call, float | None]:
        """Return a call on new inputs, launched if it can be, and for how long the GPU was still busy, ms."""
        stress = input_cases.stress_of(self.evaluation.plan, kind)
        if not self.keep:  # memory is short and was released: allocate it again by a call on other inputs
            self.slots.fill(secret_seed(), stress)
            message = {"op": "run", "variant": variant, "inputs": self.slots.described()}
            implementation.ask(message, self.options.timeout_s)
        self._others(implementation)
        self.slots.move()
        call, early_ms = self.launching.ready(
            implementation, variant, lambda: self.slots.fill(secret_seed(), stress), self.busy_s, gated=gated
        )
        if early_ms is None:
            detail = f"the GPU stays busy while the solution is stopped ({BUSY_TRIES} flushes in a row were delayed)"
            if not implementation.trusted:
                raise SolutionRejected("background_work", detail)
            if self.solutions:  # a measurement beside whatever keeps the GPU busy is invalid
                call.let_go()
                raise Blamed(self.solutions[0], SolutionRejected(DISTURBED_CODE, detail))
        return call, early_ms

    def _sample(
        self, implementation: Implementation, call: Call, answer: Json, wall_ms: float, early_ms: float | None
    ) -> Sample:
        """Return the sample of a sealed call. Raises SolutionRejected if it reports an impossible time."""
        device_ms, host_ms = (sampling.reported(answer.get(name)) for name in ("device_ms", "host_ms"))
        launch_ms = answer.get("launch_ms")
        if implementation.trusted:
            launch_ms = sampling.reported(launch_ms)
        elif not (isinstance(launch_ms, float) and 0 <= launch_ms < sampling.MAX_MS):
            launch_ms = 0.0  # a solution's report only informs
        sample = Sample(
            device_ms, host_ms, wall_ms, call.gate_us / 1e3, launch_ms, seal_ms=self.busy_s * 1e3 - wall_ms,
            hidden=call.hidden(launch_ms) if self.cuda else None,
        )  # fmt: skip
        # earlier work counts in the call
        if not implementation.trusted and early_ms and early_ms > sampling.CLOCK_SLACK_MS:
            return replace(sample, device_ms=device_ms + early_ms, reported_ms=device_ms)
        return sample

    def _others(self, implementation: Implementation) -> None:
        """Stop every other solution, and check that none of them has run since. Raises Blamed."""
        self._stop(but=implementation)
        for other in moved(s for s in self.solutions if s is not implementation):
            raise Blamed(other, Restless(other))

    def _intact(self, implementation: Implementation) -> bool:
        """Return whether the call left the inputs unchanged, or is the problem's own Model, which may write to them."""
        evaluation = self.evaluation
        if evaluation.problem.writes_inputs or self.slots.unchanged():
            return True
        return implementation.trusted and liberties(evaluation.plan, evaluation.expected.native.init)[0]

    def _check(self, implementation: Implementation, kind: str, seal: Seal) -> None:
        """Check a timed output: its bytes against its seal, and a secret row or all of it against the reference.

        All of it is also compared if the row alone is wrong by its own norm. The inputs are overwritten first, so that
        unfinished work cannot use them.

        For a baseline the row is only fetched, so that its next call begins as a solution's does. Straight after a
        seal, an ungated call's device time begins 0.15 ms earlier on an H200, and the judge's clock would count that
        difference against a solution that is launched late.
        """
        evaluation, baseline = self.evaluation, implementation in self.baselines
        row, whole = evaluation.expected.shape.random_row()
        if not implementation.trusted:
            every = _WHOLE_EVERY if self.slots.output_bytes < _LARGE_BYTES else _WHOLE_EVERY_LARGE
            whole = whole or self.whole[implementation.name].now(every) or random.SystemRandom().randrange(every) == 0
        assert implementation.worker is not None
        implementation.worker.stop()
        if (whole or not self.cuda) and not baseline and not self._intact(implementation):
            raise SolutionRejected("input_modified", "a timed call changed its inputs")
        if not evaluation.problem.aliases_input:  # else the output lies in them
            self.slots.spoil()
        look = implementation.ask({"op": "look"}, self.options.timeout_s)
        seal.states = look.get("states")
        if baseline:
            evaluation.comparison.take(implementation, look, row, seal)
            return
        klass = self.verified.get(implementation.name, self.classes.get("eager", ""))
        comparison, fixture = evaluation.comparison, evaluation.fixture
        values: Values = {}
        for everything in (True,) if whole else (False, True):  # an error large for one row may be small for the whole
            distances, _ = comparison.compare(implementation, look, row, whole=everything, bound=seal)
            values = distances.values()
            if meets(values if everything else of_row(values), fixture, kind, klass):
                return
        raise self._wrong(values, kind, klass)

    def _wrong(self, values: Values, kind: str, klass: str) -> SolutionRejected:
        """Return the error of a timed output with these distances."""
        fixture = self.evaluation.fixture
        limits = fixture.trials[kind].limits[klass]
        name, place = named(values, limits)
        value, limit = (of[at(name, place)] for of in (values, limits))
        where = " of ".join(filter(None, [name, fixture.output_name(place)]))
        detail = f"{where} {value:.3g} over the limit {limit:.3g} of class {klass}, {kind} inputs"
        return SolutionRejected("timed_output_wrong", detail)

    # -- the whole ------------------------------------------------------------------------------------------------

    def run(self) -> tuple[AllSeries, Timing]:
        """Run all blocks. Return the series and facts about them. Raises Blamed."""
        options, runners = self.options, self.prepare()
        self.evaluation.progress(f"{self.evaluation.problem.key}: timing {', '.join(r.name for r in runners)}")
        self.evaluation.mark("warm")
        self.clock.lap("telemetry")
        if options.screening:
            screened = sampling.screened(runners, options.timing_budget_s, options.max_blocks)
            return screened, Timing(status="screened", left_out={}, baseline_classes={})
        series, status = sampling.measure(runners, options.timing_budget_s, warm=self.cuda, most=options.max_blocks)
        self.series = series
        watched = self.cuda and options.trust != "dev"
        if watched:
            sampling.ask_more(runners, series, self.launching.late)
        self.clock.lap("sampling")
        self.evaluation.mark("timed")
        self.clock.lap("telemetry")
        timing = self._facts(series, status)
        if watched:
            late = self.launching.late
            self._decide(series, [series[r.name] for r in runners if not r.candidate and r.name not in late])
        return series, timing.model_copy(update=self._passes(runners, series))

    def _facts(self, series: AllSeries, status: str) -> Timing:
        """Return how the blocks were measured."""
        gated = {name: [sample.launch_ms for sample in samples.gated] for name, samples in series.items()}
        launch_ms = {name: round(statistics.median(times), 4) for name, times in gated.items() if times}
        return Timing(
            status=status,
            left_out=self.left_out | self._skipped(),
            baseline_classes=self.classes,
            compiled_anew=dict(ChainMap(*(each.made for each in self.baselines))),
            inputs=f"{self.kind}, new for every call",
            other_inputs=sorted(self.others),
            launch_ms=launch_ms,
            launches_not_hidden=sampling.visible(series) if self.cuda else [],
            launched_late=sorted(self.launching.late),
        )

    def _passes(self, runners: list[Runner], series: AllSeries) -> dict[str, object]:
        """Measure what the options ask for beside the blocks. Return the facts for `Timing`. Raises Blamed."""
        facts: dict[str, object] = {}
        if self.cuda:
            facts["power_limit"] = self.idle.limit.record()
        if self.control is not None:
            facts["aa"] = speedups.gated(series["eager"], series[self.control.name])
        if self.audited:
            for implementation in self.solutions:
                implementation.call_bytes = self._taken(implementation)
                if "profile" in self.options.passes:
                    self._profile(implementation)
                else:
                    implementation.profile = {"kernels": [], "reason": NOT_REQUESTED}
            self.clock.lap("profile")
            if self.options.alone:
                facts["alone"] = self._alone(runners, series)
            self.clock.lap("alone")
        return facts

    def _decide(self, series: AllSeries, trusted: list[Series]) -> None:
        """Compare the clocks of all solutions, and put the series that are believed in their place. Raises Blamed."""
        doubted = list[Blamed]()
        for implementation in self.solutions:
            try:
                series[implementation.name] = self._believed(implementation, series[implementation.name], trusted)
            except Blamed as blamed:
                if blamed.marginal is None:
                    raise
                doubted.append(blamed)
        if doubted:
            doubted[0].also = doubted[1:]
            raise doubted[0]

    def _believed(self, implementation: Implementation, ours: Series, trusted: list[Series]) -> Series:
        """Return the series of a solution whose clocks match the judge's and that left the GPU idle. Raises Blamed."""
        late, before = implementation.name in self.launching.late, self.before.get(implementation.name)
        if why := sampling.disagreement(ours, trusted, late=late, before=before):
            excesses = sampling.excesses(ours, trusted, late=late)
            again = excesses if before is None and sampling.marginal(excesses) else None
            raise Blamed(implementation, SolutionRejected("clocks_disagree", why), again)
        if why := self.idle.held_up(implementation.variants[0], self.classes):
            raise Blamed(implementation, SolutionRejected("background_work", why))
        return sampling.corrected(ours, trusted, late=late)

    def _skipped(self) -> dict[str, str]:
        """Return what the options leave out, of all that can be measured on a GPU: name -> reason."""
        named = {"control": "the A/A control", "profile": "the profile of kernels"}
        skipped = [name for name in PASSES if self.audited and name not in self.options.passes]
        modes = [mode for mode in baselines.MODES if skipped and mode not in self.options.modes]
        return dict.fromkeys([*modes, *(named[name] for name in skipped)], NOT_REQUESTED)

    def _taken(self, implementation: Implementation) -> int | None:
        """Return the GPU memory that one call takes beyond its output, as the judge sees it; None if it fails."""
        self._stop(but=implementation)
        self.slots.fill(secret_seed(), None)
        workers = self.evaluation.workers
        try:
            workers.release(implementation)
            before, _ = torch.cuda.mem_get_info()
            workers.call(implementation)  # its allocator keeps what it took
            after, _ = torch.cuda.mem_get_info()
        except SolutionError:
            return None
        finally:
            self._stop()
        return max(0, before - after - self.slots.output_bytes)

    def _profile(self, implementation: Implementation) -> None:
        try:
            self.slots.fill(secret_seed(), None)  # the last inputs were overwritten
            message = {"op": "profile", "variant": implementation.variants[0], "inputs": self.slots.described()}
            implementation.profile = implementation.ask(message, self.options.timeout_s)
        except SolutionError as error:
            implementation.profile = {"kernels": [], "reason": f"{error.code}: {error.detail}"}
        if implementation.worker is not None:
            implementation.worker.stop()

    def _alone(self, runners: list[Runner], series: AllSeries) -> dict[str, float]:
        """Time the baselines again without solutions. Return how many times slower each was beside them.

        Raises Blamed if they slowed the baselines.
        """
        self.evaluation.workers.end(*self.solutions)
        self.clock.lap("ending")
        solutions, self.solutions = self.solutions, []
        self.idle.alone()
        left = [r for r in runners if not r.candidate and (self.control is None or r.name != self.control.name)]
        alone, _ = sampling.measure(left, self.options.timing_budget_s, warm=True, most=_ALONE_BLOCKS)
        ratio, ratios = sampling.held_up(series, alone)
        self.solutions = solutions
        slower = f"the baselines were {100 * (ratio - 1):.0f} % slower beside the solution"
        if detail := slower if ratio > 1 + _DISTURBED else self.idle.masked(r.name for r in left):
            raise Blamed(solutions[0], SolutionRejected(DISTURBED_CODE, detail))
        return ratios
