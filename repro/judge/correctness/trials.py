"""Trials: the calls of a solution that decide whether it is right, one input case after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from repro.errors import JudgeError, SolutionDied, SolutionError, SolutionRejected
from repro.inputs import stress as stresses
from repro.judge.correctness import input_cases
from repro.judge.correctness.comparison import Comparison
from repro.judge.correctness.distance import Distances
from repro.judge.correctness.expected import Expected
from repro.judge.correctness.input_cases import NONFINITE, STRIDED, Trial
from repro.judge.correctness.tolerances import Missed, contested
from repro.judge.correctness.workers import Workers
from repro.judge.gpu import memory
from repro.judge.implementation import Implementation, Options, Progress, Restless, moved
from repro.judge.processes.wire import Json
from repro.problems.catalogue import Problem
from repro.records.fixture import PUBLISHED
from repro.records.verdict import Reason
from repro.records.wording import CASES
from repro.system.stopwatch import Clock

# Calls on the same inputs in every trial; one that differs from the first is judged like it. A kernel that is wrong at
# half of its calls, by chance, passes all of them with a probability of 2 ** -(REPEATS * trials) before timing.
REPEATS = 3
# The kind of the distance of a repeat that is wrong: it decides by a reason of its own.
REPEATED = "repeated"
# How often a draw whose result rounding decides is drawn again, and the finding that says so.
_AGAIN, AGAIN = 2, "drawn_again"
# Draws of the one NaN until it reaches the reference's output: of a pooling with gaps it reaches none now and then.
_NAN_DRAWS = 16
# How long a first call beside others may take on a GPU, with its compilation.
_FIRST_CALL_S = 20.0


@dataclass
class Trials:
    """Runs the trials of solutions. What they find is recorded in each solution.

    repeats: calls on the same inputs. parts: seconds of first calls, which compile, and of later ones. noted: is called
    after each recorded distance.
    """

    problem: Problem
    workers: Workers
    comparison: Comparison
    options: Options
    progress: Progress

    def __post_init__(self) -> None:
        self.slots = self.workers.slots
        self.repeats = REPEATS
        self.parts = Clock()
        self.noted: Callable[[], None] = lambda: None
        self._restless: set[str] = set()  # solutions that were not seen at rest once

    @property
    def expected(self) -> Expected:
        """Return what outputs are compared with."""
        return self.comparison.expected

    def verify(self, planned: list[Trial], solutions: list[Implementation], *, screening: bool = False) -> list[Trial]:
        """Run all deciding trials of some solutions, in secret order, grouped by weights. Return those that were drawn
        again.

        screening: a trial is one call without repeats, of which a few chunks are compared.
        """
        self._restless.clear()
        self.repeats = 1 if screening else REPEATS
        self.expected.keeping = self.slots.device.type == "cuda" and len(solutions) > 1
        self.comparison.choose(few=screening)
        order = list(planned)
        random.SystemRandom().shuffle(order)
        order.sort(
            key=lambda trial: (
                trial.kind in (NONFINITE, STRIDED),
                trial.judged,
                trial.perturbed,
                stresses.scaled(trial.stress),
            )
        )
        for trial in order:
            for solution in solutions:
                if solution.failed in ("", "incorrect") and solution.worker is not None:
                    self._turn(solution, trial)
        again = [] if screening else [trial for solution in solutions for trial in self._again(solution)]
        self.slots.turned = ()
        self.expected.forget()
        self.comparison.choose(few=False)
        return again

    def _turn(self, solution: Implementation, trial: Trial) -> None:
        """Say which trial of which solution begins, and run it once the GPU is free."""
        self.progress(f"{self.problem.key}: {solution.name} {CASES[trial.kind]}")
        with self.workers.gpu.trial():
            self.run(solution, trial)

    def _again(self, solution: Implementation) -> list[Trial]:
        """Draw those few trials again that keep a solution from a class and whose results rounding decides; return the
        new ones. What they replace is noted as a finding."""
        drawn = []
        for _ in range(_AGAIN):
            missed = self._decided_by_rounding(solution)
            for draw in sorted(missed, key=lambda draw: -draw.place):  # so that earlier places stay
                old, values = solution.trials[draw.kind].pop(draw.place), solution.distances[draw.kind].pop(draw.place)
                detail = f"rel_l2 {values['rel_l2']:.2g} {CASES[draw.kind]}: another draw decides class {draw.klass}"
                solution.findings.append(Reason(code=AGAIN, detail=detail))
                drawn.append(replace(old, seed=input_cases.secret_seed()))
            for trial in drawn[len(drawn) - len(missed) :]:
                self._turn(solution, trial)
        return drawn

    def _decided_by_rounding(self, solution: Implementation) -> list[Missed]:
        """Return the draws that alone keep a solution from some class, if rounding decides the result of each."""
        if solution.failed or solution.worker is None:
            return []
        with suppress(JudgeError, torch.cuda.OutOfMemoryError):  # of the reference: then no draw is replaced
            for missed in contested(solution.distances, self.comparison.fixture):
                trials = [solution.trials[draw.kind][draw.place] for draw in missed]
                if all(map(self.comparison.decided_by_rounding, trials, missed)):
                    return missed
        return []

    # -- one trial ------------------------------------------------------------------------------------------------

    def run(self, solution: Implementation, trial: Trial) -> None:
        """Run one trial of one solution; its faults become reasons.

        The trial is repeated if another solution ran meanwhile, since that one could have written to the inputs. The
        other one is rejected, and this one starts in a new worker.
        """
        before = solution.noted()
        self._try(solution, trial)
        while self._another_ran(solution, trial):
            solution.forget(before)
            self.workers.end(solution)
            self.workers.start(solution)
            if solution.worker is None:
                return
            self._try(solution, trial)

    def _another_ran(self, solution: Implementation, trial: Trial) -> bool:
        """Reject the other solutions that are not at rest, the second time. Return whether there are any.

        The first time they go on in new processes: a driver or a busy host can hold a thread in a system call.
        """
        running = moved(other for other in self.workers.solutions if other is not solution)
        again = [other for other in running if other.name not in self._restless]
        for other in running:
            if other in again:
                self._restless.add(other.name)
                self.progress(f"{self.problem.key}: {other.name} goes on in a new process: {Restless(other).detail}")
            else:
                other.fail(Restless(other), trial.kind)
        self.workers.end(*running)
        if again:
            self.workers.start(*again)
            self.workers.stop_others(solution)
        return bool(running)

    def _try(self, solution: Implementation, trial: Trial) -> None:
        try:
            self._steps(solution, trial)
        except SolutionError as error:
            if trial.kind in (NONFINITE, STRIDED):
                self._informs(solution, error, trial.kind)
                return
            solution.fail(error, trial.kind)
            if error.code == "not_finite":
                self._note(solution, trial, Distances.endless())
            if solution.failed != "incorrect":
                self.workers.end(solution)
        except torch.cuda.OutOfMemoryError as error:
            self.workers.end(solution)
            torch.cuda.empty_cache()
            why = f"it left no room on the GPU to judge it: {error}"
            solution.fail(SolutionDied("judge_out_of_memory", why), trial.kind)

    def _steps(self, solution: Implementation, trial: Trial) -> None:
        """Make the calls of a trial. Raises SolutionError for what is wrong with them."""
        self.load(solution, trial)
        self.fill(solution, trial)
        self.parts.lap()
        answer = self._called(solution)
        self.parts.lap("calls" if solution.distances else "first calls")
        if not trial.judged:
            self.comparison.check(answer)
            if trial.kind == NONFINITE:
                self._follow_nan(solution, trial)
            elif trial.kind == STRIDED:
                distance, _ = self.comparison.compare(solution, answer)
                if not self.comparison.meets_any(distance, PUBLISHED[trial.perturbed]):
                    raise SolutionRejected("rel_l2", f"{distance.values()['rel_l2']:.2g}")
            return
        digests = self._judge(solution, trial, answer)
        for turn in range(self.repeats - 1):
            answer = self._repeat(solution, trial, digests, moves=turn > 0)
        for label, fact in (("static_output", "static"), ("reuses_output", "reused")):
            if answer.get(fact):
                solution.observed.add(label)
        self._check_inputs()
        self.workers.release(solution)

    def load(self, solution: Implementation, trial: Trial) -> None:
        """Load the trial's weights into the reference and the worker, with all other solutions at rest."""
        state = self.expected.use(trial.perturbed, trial.stress)
        self.workers.stop_others(solution)
        self._another_ran(solution, trial)
        self.workers.load(solution, state)

    def fill(self, solution: Implementation, trial: Trial) -> None:
        """Make the trial's inputs at new addresses; where they are edited, after a call on those before the edit."""
        self.slots.move()
        if stresses.edits(trial.stress):
            self.slots.fill(trial.seed, self.expected.stress_before_edit)
            self.comparison.check(self._called(solution))
        self.slots.fill(trial.seed, trial.stress, self.slots.plan.turnable if trial.kind == STRIDED else ())

    def _called(self, solution: Implementation) -> Json:
        """Return the answer to a call on the inputs in the buffers."""
        memory.make_room(self.slots.device)
        return self.workers.call(solution)

    def _judge(self, solution: Implementation, trial: Trial, answer: Json) -> list[int]:
        """Record the distance of the first call's output; return digests of it."""
        distance, digests = self.comparison.compare(solution, answer)
        self._check_settled(solution, answer)
        self._note(solution, trial, distance)
        if self.comparison.shares:
            solution.bits = self.comparison.digests(solution, whole=True)
        return digests

    def _repeat(self, solution: Implementation, trial: Trial, digests: list[int], *, moves: bool) -> Json:
        """Call again on the same inputs, which may move to other addresses. Another output than the first is judged."""
        if moves:
            self._check_inputs()
            self.slots.move()
        if moves or self.problem.writes_inputs:
            self.slots.fill(trial.seed, trial.stress)
        answer = self._called(solution)
        self.comparison.check(answer)
        if self.comparison.digests(solution) != digests:
            solution.observed.add("nondeterministic")
            distance, _ = self.comparison.compare(solution, answer)
            if not self.comparison.meets_any(distance, trial.kind):
                self._note(solution, replace(trial, kind=REPEATED), distance)
                self._check_inputs()
                detail = f"a repeat on the same inputs has relative L2 error {distance.values()['rel_l2']:.2g}"
                raise SolutionRejected("nondeterministic_wrong", detail)
            self._note(solution, trial, distance)
        return answer

    def _check_settled(self, solution: Implementation, answer: Json) -> None:
        """Raise SolutionRejected if the output changed since its call ended."""
        now = self.workers.ask(solution, {"op": "again"}).get("digest")
        if now is None or now != answer.get("digest"):
            raise SolutionRejected("deferred_write", "the output changed after its call had ended")

    def _check_inputs(self) -> None:
        """Raise SolutionRejected if a call changed its inputs."""
        if not self.problem.writes_inputs and not self.slots.unchanged():
            raise SolutionRejected("input_modified", "the call changed its inputs")

    def _note(self, solution: Implementation, trial: Trial, distance: Distances) -> None:
        solution.distances.setdefault(trial.kind, []).append(distance.values())
        solution.trials.setdefault(trial.kind, []).append(trial)
        legacy = solution.legacy.setdefault(trial.kind, dict(distance.legacy))
        for name, passed in distance.legacy.items():
            legacy[name] = legacy[name] and passed
        self.noted()

    # -- inputs with a NaN ----------------------------------------------------------------------------------------

    def _follow_nan(self, solution: Implementation, trial: Trial) -> None:
        """Look where the NaN of the inputs went in the output; draw it again while it reaches no element."""
        for _ in range(_NAN_DRAWS):
            if self._nan_reached(solution):
                break
            self.slots.fill(input_cases.secret_seed(), trial.stress)
            self.comparison.check(self._called(solution))

    def _nan_reached(self, solution: Implementation) -> bool:
        """Record a finding if the output is finite elsewhere than the reference is.

        Return whether the NaN told anything: no window of a pooling may look at it.
        """
        try:
            infinite, hidden, others = self.comparison.nonfinite(solution)
        except JudgeError:  # the Model itself takes no NaN
            return True
        if not hidden and not others:
            return bool(infinite)
        self._find(
            solution,
            NONFINITE,
            f"{hidden} of {infinite} elements hide a NaN of the inputs, {others} others are not finite",
        )
        return True

    def _informs(self, solution: Implementation, error: SolutionError, kind: str) -> None:
        """Record that a solution fails on a NaN, or on strides, which decide where it is asked for. Replace its worker
        if it lost its own."""
        detail = f"{error.code}: {error.detail}"
        if kind == STRIDED and "strides" in self.options.checks:
            solution.fail(SolutionRejected("needs_contiguous", detail), kind)
            return
        self._find(solution, kind, detail)
        if error.verdict == "timeout" or not isinstance(error, SolutionRejected):
            self.workers.end(solution)
            self.workers.start(solution)

    @staticmethod
    def _find(solution: Implementation, kind: str, detail: str) -> None:
        solution.observed.add(kind)
        solution.findings.append(Reason(code=kind, detail=detail))

    # -- first calls ----------------------------------------------------------------------------------------------

    def compile_all(self, solutions: list[Implementation], *, decides: bool) -> None:
        """Have solutions make their first call side by side, on inputs that any of them may change.

        On a GPU it may take _FIRST_CALL_S, or a candidate that compiles for minutes would hold up all others. decides:
        a failure ends the worker and is the solution's verdict. Otherwise a solution that fails gets a new worker, and
        its trials decide.
        """
        running = [solution for solution in solutions if solution.worker is not None]
        if self.options.trust == "dev" or not running:
            return
        faults = self._first_calls(running)
        for solution, fault in faults if decides else []:
            solution.fail(fault, "first call")
        failed = [solution for solution, _ in faults]
        self.workers.end(*failed)
        if not decides:
            self.workers.start(*failed)

    def _first_calls(self, running: list[Implementation]) -> list[tuple[Implementation, SolutionError]]:
        """Return the solutions whose weights cannot be loaded or whose first call fails, with the error."""
        state = self.expected.use(not self.problem.native_signal)
        faults: dict[str, SolutionError] = {}
        for solution in running:
            try:
                self.workers.load(solution, state)
            except SolutionError as error:
                faults[solution.name] = error
        self.slots.fill(input_cases.secret_seed(), None)
        usual_s = self.options.timeout_s
        limit_s = usual_s if self.slots.device.type != "cuda" else min(_FIRST_CALL_S, usual_s)

        def call(solution: Implementation) -> None:
            try:
                if solution.name not in faults:
                    self.workers.call(solution, timeout_s=limit_s)
                    self.workers.release(solution)
            except SolutionError as error:
                faults[solution.name] = error

        with ThreadPoolExecutor(len(running)) as threads:
            list(threads.map(call, running))
        return [(solution, faults[solution.name]) for solution in running if solution.name in faults]
