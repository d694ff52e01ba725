"""The timing of an evaluation: baselines, an A/A control and the correct solutions, one at a time, against each other.

A call of a variant goes so. Its worker launches it, behind a gate at which the GPU waits, and is stopped, as all others
are. Only then the judge makes new inputs, flushes the L2 from its own process and sees that the GPU is idle
(`idle.py`). It notes its clock, wakes that one worker and opens the gate; the worker's answer ends the clock of the
call, and a second clock runs until it has sealed what the call returned. One secret row of that is compared with the
reference, and now and then all of it. What a solution launches can therefore wait as long as it likes, but there is
nothing to compute from before the clock runs.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from repro.errors import SolutionDied, SolutionError, SolutionRejected
from repro.judge import baselines, speedups, timing, trials
from repro.judge.ahead import COMPILE_TIMEOUT_S
from repro.judge.call import Launching
from repro.judge.clock import Clock
from repro.judge.idle import BUSY_TRIES, Idle
from repro.judge.reference import changes_inputs
from repro.judge.seal import Seal
from repro.judge.subject import PASSES, RUNS, Subject, moved
from repro.judge.timing import Block, Excess, Runner, Sample, Series, Turns
from repro.judge.trials import secret_seed
from repro.judge.verify import Evaluation, meets

# One in so many timed outputs by chance, and a secret one of each so many, is compared whole; of the others one row.
# The first of them is one of the first cycle, which fits every budget.
WHOLE_EVERY, WHOLE_EVERY_LARGE, LARGE_BYTES = 8, 20, 512 << 20
# Blocks of the baselines alone, when every solution is gone, and how much faster they may be then.
ALONE_BLOCKS, DISTURBED = 8, timing.HELD_UP
DISTURBED_CODE = "baseline_disturbed"
HOT_MS, HOT_CALLS = 30.0, 200
# What a worker ends with.
ENDED = ("timeout", "worker_exited", "segfault", "killed")
# Why a pass is left out.
WITHOUT = "this run does without"
# Workers keep what their allocators hold between calls where all of it is under this share of the GPU's memory.
KEEP_SHARE = 0.75


class Blamed(Exception):
    """A failure while timing, and whose it is. marginal: the clocks of a solution that has another process then."""

    def __init__(self, subject: Subject, error: SolutionError, marginal: dict[str, Excess] | None = None) -> None:
        super().__init__(error.code)
        self.subject, self.error, self.marginal = subject, error, marginal


class Contest:
    """One timing of the correct solutions against the baselines. before: of those that are timed once more because
    their clocks disagreed a little, by how much."""

    def __init__(
        self,
        evaluation: Evaluation,
        solutions: list[Subject],
        classes: dict[str, str],
        baselines_: list[Subject],
        control: Subject | None,
        clock: Clock,
        before: dict[str, dict[str, Excess]],
    ) -> None:
        self.before = before
        self.evaluation, self.solutions, self.baselines, self.control = evaluation, solutions, baselines_, control
        self.clock = clock
        self.verified = classes
        self.options, self.slots, self.device = evaluation.options, evaluation.slots, evaluation.device
        self.cuda = self.device.type == "cuda"
        self.classes: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.whole = {s.name: Turns() for s in solutions}
        self.busy_s = 0.0
        self.spent_s: dict[str, float] = {}
        self.idle = Idle(self.device, watched=self.options.trust != "dev")
        self.launching = Launching(self.idle, self.slots, self.options.timeout_s, held=self.options.trust != "dev")
        self.keep = True
        self.series: dict[str, Series] = {}  # what was measured, also where it does not count in the end
        self.dims = 0 if evaluation.own.rows is None else evaluation.problem.batch_dims
        perturbed = not evaluation.problem.native_signal
        self.kind, self.state = evaluation.use(perturbed)  # the trial with published inputs is called as its weights
        self.others = trials.others(evaluation.plan, perturbed)
        random.SystemRandom().shuffle(self.others)

    @property
    def everyone(self) -> list[Subject]:
        """Baselines, control, solutions."""
        return [*self.baselines, *([self.control] if self.control is not None else []), *self.solutions]

    def _stop(self, but: Subject | None = None) -> None:
        for subject in self.everyone:
            if subject is not but and subject.worker is not None:
                subject.worker.stop()

    # -- before ---------------------------------------------------------------------------------------------------

    def prepare(self) -> list[Runner]:
        """Loads weights everywhere, compiles and classes the baselines; returns what will run."""
        evaluation = self.evaluation
        for subject in self.everyone:
            self._prepared(subject)
        self.clock.lap("weights")
        runners = []
        for subject in list(self.baselines):
            for variant in subject.variants:
                evaluation.progress(f"{evaluation.problem.key}: {variant}")
                self._others(subject)
                self.slots.fill(secret_seed(), None)  # which no solution has seen, let alone changed
                if self._classed(subject, variant):
                    runners.append(Runner(variant, self._run(subject, variant)))
                self._others(subject)
                if not self._intact(subject):
                    detail = f"the inputs were changed when {variant} was to run on them"
                    raise Blamed(self.solutions[0], SolutionRejected(DISTURBED_CODE, detail))
            if subject.worker is None:
                self.baselines.remove(subject)
            else:
                self._prepared(subject)  # once more: it may have compiled
        self.clock.lap("baselines")
        if "eager" not in self.classes:
            self.control = None  # nothing to compare it with; `left_out` says why
        for subject in self.everyone[len(self.baselines) :]:
            run, control = self._run(subject, subject.variants[0]), subject.control
            runners.append(Runner(subject.name, run, candidate=not control, control=control))
        if self.cuda:
            self._settle()
        self.clock.lap("settling")
        return runners

    def _prepared(self, subject: Subject) -> None:
        try:
            self.evaluation.load(subject, self.kind, self.state)
            subject.ask({"op": "prepare"}, self.options.timeout_s)
        except SolutionError as error:
            raise Blamed(subject, error) from error

    def _classed(self, subject: Subject, variant: str) -> bool:
        """Compiles a baseline, runs it and notes its class; where it fails, why it is left out."""
        begin = time.monotonic()
        tuned = baselines.split(variant)[0] == baselines.TUNED
        if subject.worker is None:
            self.left_out[variant] = "the variant before it ended their worker"
            return False
        timeout_s = self.options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S
        try:
            self.classes[variant] = self.evaluation.class_now(subject, variant, self.kind, timeout_s)
        except SolutionError as error:
            self.left_out[variant] = f"{error.code}: {error.detail}"
            if error.verdict in ("timeout", "error") and error.code in ENDED:
                self.evaluation.end(subject)
                if not tuned:
                    raise Blamed(subject, error) from error
            return False
        finally:
            self.spent_s[variant] = round(time.monotonic() - begin, 3)
        return True

    def _settle(self) -> None:
        """Sees what a flush takes on an idle GPU, and whether all workers' memory fits at once."""
        self._stop()
        self.idle.settle()
        free, total = torch.cuda.mem_get_info()
        # a worker without its cache needs inputs for nobody but outputs and workspace again at every call
        self.keep = free > (1 - KEEP_SHARE) * total

    # -- one call -------------------------------------------------------------------------------------------------

    def _variants(self) -> list[str]:
        """The baselines that are timed."""
        return [name for subject in self.baselines for name in subject.variants if name in self.classes]

    def _kind(self, block: Block) -> str:
        """The trial whose inputs a block has: those that the problem publishes, or one of the others in turn."""
        if block.condition != "other" or not self.others:
            return self.kind
        return self.others[block.number // timing.CYCLE % len(self.others)]

    def _run(self, subject: Subject, variant: str) -> Any:
        def run(block: Block) -> Sample:
            try:
                return self._call(subject, variant, block)
            except SolutionError as error:
                raise Blamed(subject, error) from error
            except torch.cuda.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                detail = f"it left no room on the GPU to judge it: {error}"
                raise Blamed(subject, SolutionDied("judge_out_of_memory", detail)) from error

        return run

    def _call(self, subject: Subject, variant: str, block: Block) -> Sample:
        worker, gated = subject.worker, block.condition != "open"
        assert worker is not None
        timeout_s = self.options.timeout_s
        kind = self._kind(block)
        stress = trials.stress_of(self.evaluation.plan, kind)
        if not self.keep:  # memory is short: nobody kept any, so it is taken again on inputs of its own
            self.slots.fill(secret_seed(), stress)
            subject.ask({"op": "run", "variant": variant, "inputs": self.slots.told()}, timeout_s)
        fill = lambda: self.slots.fill(secret_seed(), stress)  # noqa: E731
        self._others(subject)
        call, early_ms = self.launching.ready(subject, variant, fill, self.busy_s, gated=gated)
        if early_ms is None:
            detail = f"the GPU is busy while the solution is stopped ({BUSY_TRIES} flushes in a row were held up)"
            if not subject.trusted:
                raise SolutionRejected("background_work", detail)
            if self.solutions:  # no measure beside whatever holds it up
                call.let_go()
                raise Blamed(self.solutions[0], SolutionRejected(DISTURBED_CODE, detail))
        if not worker.rested() and not subject.trusted:
            raise SolutionRejected("background_work", RUNS)
        seal = Seal(self.dims, self.slots.staging_bytes)
        answer, wall_ms = call.go()
        sealed = subject.ask({"op": "seal", "key": seal.key.hex()}, timeout_s)
        self.busy_s = time.perf_counter() - call.begin
        seal_ms = self.busy_s * 1e3 - wall_ms
        device_ms, host_ms = (timing.reported(answer.get(name)) for name in ("device_ms", "host_ms"))
        launch_ms = answer.get("launch_ms")
        if subject.trusted:
            launch_ms = timing.reported(launch_ms)
        elif not (isinstance(launch_ms, float) and 0 <= launch_ms < timing.MAX_MS):  # a solution's informs only
            launch_ms = 0.0
        hidden = call.hidden(launch_ms) if self.cuda else None
        sample = Sample(device_ms, host_ms, wall_ms, call.gate_us / 1e3, launch_ms, seal_ms=seal_ms, hidden=hidden)
        if not subject.trusted and early_ms and early_ms > timing.CLOCK_SLACK_MS:  # what was done before is the call's
            sample = replace(sample, device_ms=device_ms + early_ms, reported_ms=device_ms)
        self._others(subject)
        subject.note_modes(variant, answer.get("modes"))
        seal.roots = sealed.get("roots")
        self._check(subject, kind, seal)
        if not self.keep:
            subject.ask({"op": "release"}, timeout_s)
        worker.stop()
        return sample

    def _others(self, subject: Subject) -> None:
        """Sees that every other solution is stopped, and that none of them ran since. Raises Blamed."""
        self._stop(but=subject)
        for other in moved(s for s in self.solutions if s is not subject):
            raise Blamed(other, SolutionRejected("background_work", RUNS))

    def _intact(self, subject: Subject) -> bool:
        """Whether its call left the inputs as they were made, or is the problem's own Model, which writes to them."""
        evaluation = self.evaluation
        return self.slots.unchanged() or (subject.trusted and changes_inputs(evaluation.plan, evaluation.native))

    def _check(self, subject: Subject, kind: str, seal: Seal) -> None:
        """A secret row of a timed output against the reference, or all of it, as where it is wrong by its own norm, and
        its bytes against what the call told of them. The inputs are overwritten first: what was not computed yet is
        not computed from them any more.

        Of a baseline the row is fetched and no more, so that its next call begins as everybody's does. After the seal
        alone its device time begins earlier, by 0.15 ms on an H200 where no gate is before it, and the judge's clock
        would take the difference for the time of a solution that is launched late."""
        evaluation, baseline = self.evaluation, subject in self.baselines
        row, whole = evaluation.random_row()
        if not subject.trusted:
            every = WHOLE_EVERY if self.slots.output_bytes < LARGE_BYTES else WHOLE_EVERY_LARGE
            whole = whole or self.whole[subject.name].now(every) or random.SystemRandom().randrange(every) == 0
        assert subject.worker is not None
        subject.worker.stop()
        if (whole or not self.cuda) and not baseline and not self._intact(subject):
            raise SolutionRejected("input_modified", "a timed call changed its inputs")
        self.slots.spoil()
        look = subject.ask({"op": "look"}, self.options.timeout_s)
        seal.told = look.get("states")
        if baseline:
            evaluation.taken(subject, look.get("output"), row, seal)
            return
        klass = self.verified.get(subject.name, self.classes.get("eager", ""))
        values = dict[str, float]()
        for everything in (True,) if whole else (False, True):  # what is much of a small row may be little of the whole
            distance, _ = evaluation.compare(subject, look.get("output"), row, whole=everything, bound=seal)
            values = distance.values()
            shown = values if everything else {"row": values["rel_l2"]}  # a row is measured by its own norm
            if meets(shown, evaluation.fixture, kind, klass):
                return
        limits = evaluation.fixture["trials"][kind]["limits"][klass]
        name = max(limits, key=lambda each: values.get(each, 0.0) / limits[each])
        told = f"{name} {values[name]:.3g} over the limit {limits[name]:.3g} of class {klass}, {kind} inputs"
        raise SolutionRejected("timed_output_wrong", told)

    # -- the whole ------------------------------------------------------------------------------------------------

    def run(self) -> tuple[dict[str, Series], dict[str, Any]]:
        """All blocks. Returns the series and facts about them. Raises Blamed."""
        key = self.evaluation.problem.key
        runners = self.prepare()
        self.evaluation.progress(f"{key}: timing {', '.join(r.name for r in runners)}")
        self.evaluation.mark("warm")
        self.clock.lap("telemetry")
        series, status = timing.measure(runners, self.options.timing_budget_s, warm=self.cuda,
                                        most=self.options.max_blocks)  # fmt: skip
        self.series = series
        self.clock.lap("sampling")
        self.evaluation.mark("timed")
        self.clock.lap("telemetry")
        baselines_ = {r.name: series[r.name] for r in runners if not r.candidate}
        trusted = [found for name, found in baselines_.items() if name not in self.launching.late]
        self.left_out |= self._skipped()
        facts: dict[str, Any] = {"status": status, "left_out": self.left_out, "baseline_classes": self.classes,
                                 "compile_s": self.spent_s, "inputs": f"{self.kind}, new for every call",
                                 "other_inputs": sorted(self.others), "memory_kept": self.keep,
                                 "launch_ms": {n: round(statistics.median(s.launch_ms for s in x.gated), 4)
                                               for n, x in series.items() if x.gated},
                                 "overhead_ms": {n: round(statistics.median(s.unexplained_ms for s in x.gated), 4)
                                                 for n, x in series.items() if x.gated},
                                 "seal_ms": {n: round(statistics.median(s.seal_ms for s in x.gated), 4)
                                             for n, x in series.items() if x.gated},
                                 "launches_not_hidden": timing.visible(series) if self.cuda else [],
                                 "launched_late": sorted(self.launching.late)}  # fmt: skip
        if self.cuda:
            facts |= self.idle.to_json()
            for subject in self.solutions if self.options.trust != "dev" else []:
                series[subject.name] = self._believed(subject, series[subject.name], trusted)
            if "hot" in self.options.passes:
                self._hot(series)
                self.clock.lap("hot")
        if self.control is not None:
            facts["aa"] = speedups.gated(series["eager"], series[self.control.name])
        if self.cuda and self.options.trust == "audited":
            for subject in self.solutions:
                if "profile" in self.options.passes:
                    self._profile(subject)
                else:
                    subject.profile = {"kernels": [], "reason": WITHOUT}
            self.clock.lap("profile")
            self._alone(runners, series, facts)
            self.clock.lap("alone")
        return series, facts

    def _believed(self, subject: Subject, ours: Series, trusted: list[Series]) -> Series:
        """The times of a solution whose clocks fit the judge's, and that left nobody on the GPU. Raises Blamed."""
        late, before = subject.name in self.launching.late, self.before.get(subject.name)
        if why := timing.disagreement(ours, trusted, late=late, before=before):
            found = timing.excesses(ours, trusted, late=late)
            again = found if before is None and timing.marginal(found) else None
            raise Blamed(subject, SolutionRejected("clocks_disagree", why), again)
        if why := self.idle.held_up(subject.variants[0], self._variants()):
            raise Blamed(subject, SolutionRejected("background_work", why))
        return timing.corrected(ours, trusted, late=late)

    def _skipped(self) -> dict[str, str]:
        """What a GPU would measure and the options leave out: name -> why."""
        audited = self.cuda and self.options.trust == "audited"
        named = {"control": "the A/A control", "hot": "times back to back (hot)", "profile": "the profile of kernels"}
        skipped = [name for name in PASSES if audited and name not in self.options.passes]
        modes = [mode for mode in baselines.MODES if skipped and mode not in self.options.modes]
        return dict.fromkeys([*modes, *(named[name] for name in skipped)], WITHOUT)

    def _hot(self, series: dict[str, Series]) -> None:
        """Calls back to back on the same inputs, for every variant: what a caller sees whose data is in the cache."""
        self.slots.fill(secret_seed(), None)  # the last ones were overwritten
        told = self.slots.told()
        for subject in self.everyone:
            for variant in subject.variants:
                found = series.get(variant if subject in self.baselines else subject.name)
                if found is None or not found.gated:
                    continue
                calls = max(2, min(HOT_CALLS, math.ceil(HOT_MS / statistics.median(found.device_ms))))
                message = {"op": "hot", "variant": variant, "inputs": told, "calls": calls}
                with contextlib.suppress(SolutionError):
                    found.hot_ms = timing.reported(subject.ask(message, self.options.timeout_s).get("ms"))
            self._stop()

    def _profile(self, subject: Subject) -> None:
        try:
            message = {"op": "profile", "variant": subject.variants[0], "inputs": self.slots.told()}
            subject.profile = subject.ask(message, self.options.timeout_s)
        except SolutionError as error:
            subject.profile = {"kernels": [], "reason": f"{error.code}: {error.detail}"}
        if subject.worker is not None:
            subject.worker.stop()

    def _alone(self, runners: list[Runner], series: dict[str, Series], facts: dict[str, Any]) -> None:
        """The baselines once more when no solution lives: were they held up before? Raises Blamed for all."""
        self.evaluation.end(*self.solutions)
        self.clock.lap("ending")
        solutions, self.solutions = self.solutions, []
        self.idle.alone()
        left = [r for r in runners if not r.candidate and (self.control is None or r.name != self.control.name)]
        found, _ = timing.measure(left, self.options.timing_budget_s, warm=True, most=ALONE_BLOCKS)
        ratio, told = timing.held_up(series, found)
        facts |= told
        self.solutions = solutions
        if ratio > 1 + DISTURBED:
            detail = f"the baselines were {100 * (ratio - 1):.0f} % slower beside it"
            raise Blamed(solutions[0], SolutionRejected(DISTURBED_CODE, detail))
        if detail := self.idle.masked(r.name for r in left):
            raise Blamed(solutions[0], SolutionRejected(DISTURBED_CODE, detail))
