"""Measures the times of correct solutions beside the torch baselines, and repeats measurements that do not count.

A measurement ends with the times of all its solutions, or with one solution that is blamed for its failure. What
follows depends on the state:

together    All solutions are measured together. If the baselines were slower beside them, all are measured again
            (repeated), since a busy host slows the baselines too.
repeated    If the baselines are slower again beside several solutions, each is measured alone. A single solution, or
            the first one if each was alone before, is rejected.
each alone  A solution that slows the baselines alone is rejected. The others are then measured together.

In every state, a solution whose clocks disagree slightly is measured again in a new process, once, and so is one that
was not seen at rest while it was stopped: a driver or a busy host can hold a thread in a system call. Any other failure
rejects the blamed solution, and the others are measured again without it. Discarded measurements are kept whole with
the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from repro.errors import JudgeError
from repro.judge import baselines, verdict
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation, Options, Restless
from repro.judge.processes import pool
from repro.judge.timing.experiment import DISTURBED_CODE, Blamed, Experiment
from repro.judge.timing.sampling import AllSeries, Excesses
from repro.judge.verdict import Judged
from repro.records.result import Discarded, Timing
from repro.system.stopwatch import Clock

Measured = tuple[AllSeries, Timing]


_State = Literal["together", "repeated", "each alone"]


@dataclass
class Measurement:
    """The measurement of some correct solutions of one problem.

    good: the solutions. judged: verdicts by name; a rejected solution gets a new one. trusted: workers of the
    baselines, which stay alive. late: baselines that took too long to compile, with the reason; more are added. spent:
    seconds by part.
    """

    evaluation: Evaluation
    good: list[Implementation]
    judged: dict[str, Judged]
    trusted: list[Implementation]
    control: Implementation | None
    options: Options
    late: dict[str, str]
    spent: Clock

    def __post_init__(self) -> None:
        self.state: _State = "together"
        self.suspects: list[Implementation] = []  # solutions still to be measured alone
        self.searched = False
        self.after_search: _State = "repeated"
        self.before: dict[str, Excesses] = {}
        self.restless: set[str] = set()  # solutions that were not seen at rest once
        self.again: list[str] = []
        self.discarded: list[Discarded] = []

    def run(self) -> Measured:
        """Return the series of all variants and facts about them; without a correct solution left, no series.

        Raises JudgeError if the baselines fail.
        """
        while self.good:
            if measured := self._measured():
                series, timing = measured
                if self.again:
                    timing = timing.model_copy(update={"timed_again": "; ".join(self.again)})
                return series, self._with_discarded(timing)
        return {}, self._with_discarded(Timing(status="not_timed"))

    def _measured(self) -> Measured | None:
        """Make one measurement; return it if it counts for all solutions."""
        group = self.suspects[:1] or self.good
        self.evaluation.workers.end(*[s for s in self.good if s not in group])
        classes = {s.name: klass for s in group if (klass := self.judged[s.name].precision_class)}
        names = baselines.names(self.evaluation.problem.dtype, set(classes.values()), self.options.modes)
        chosen = self._started(names, group)
        lost = [s for s in group if s.failed]  # were correct, but did not start again
        self._drop(*lost)
        if not (group := [s for s in group if s not in lost]):
            return None
        experiment = Experiment(
            self.evaluation, group, classes, chosen, self.control, self.spent, self.before, self.options
        )
        experiment.left_out |= {n: why for n, why in self.late.items() if n in names}
        try:
            with pool.paused():
                measured = experiment.run()
        except Blamed as blamed:
            self._react(experiment, blamed)
            return None
        if group == self.good:
            return measured
        self._discard(experiment, group[0], "alone", "the baselines were not slower beside this solution alone")
        self.suspects.remove(group[0])
        self._end_search()
        return None

    def _started(self, names: list[str], group: list[Implementation]) -> list[Implementation]:
        """Start all workers; return the baselines' with the variants of `names` that they are to run."""
        evaluation, chosen = self.evaluation, []
        for implementation in self.trusted:
            variants = [n for n in names if n not in self.late and baselines.worker_of(n) == implementation.name]
            if variants != implementation.variants:
                evaluation.workers.rebind(implementation)
            implementation.variants = variants
            chosen += [implementation] if variants else []
        fixed = [*chosen, *filter(None, [self.control])]
        evaluation.workers.start(*[s for s in [*fixed, *group] if s.worker is None])
        self.spent.lap("workers")
        for implementation in fixed:
            if implementation.failed:
                what = f"the baselines of {evaluation.problem.key} do not start"
                raise JudgeError(what, "; ".join(f"{r.code}: {r.detail}" for r in implementation.reasons))
        return chosen

    # -- after a failed measurement -----------------------------------------------------------------------------------

    def _react(self, experiment: Experiment, blamed: Blamed) -> None:
        solution, error = blamed.implementation, blamed.error
        self._discard(experiment, solution, error.code, error.detail)
        key = self.evaluation.problem.key
        if solution.trusted:
            raise JudgeError(f"timing of {key} failed", f"{error.code}: {error.detail}") from error
        # A compilation that took too long would do so again.
        self.late |= {n: why for n, why in experiment.left_out.items() if why.startswith("timeout")}
        disturbed = error.code == DISTURBED_CODE
        restless = isinstance(error, Restless) and solution.name not in self.restless
        if disturbed and self.state == "together":
            self.state = "repeated"
            self._announce(error.detail)
        elif disturbed and self.state == "repeated" and len(experiment.solutions) > 1 and not self.searched:
            self.state, self.searched, self.suspects = "each alone", True, list(experiment.solutions)
            self.after_search = "repeated"
            self._announce(f"each alone: {error.detail}")
        elif restless or blamed.marginal is not None:
            for failure in (blamed, *blamed.also):
                self._renew(failure)
        else:
            solution.fail(error, "timing")
            self.evaluation.workers.end(solution)
            self.state = "each alone" if self.state == "each alone" else "together"
            self.after_search = "together"
            self._drop(solution)

    def _renew(self, failure: Blamed) -> None:
        """Have a solution measured again in a new process, which may be placed better."""
        if failure.marginal is not None:
            self.before[failure.implementation.name] = failure.marginal
        else:
            self.restless.add(failure.implementation.name)
        self._announce(failure.error.detail)
        self.evaluation.workers.end(failure.implementation)

    def _drop(self, *solutions: Implementation) -> None:
        """Leave out solutions that failed, with their new verdicts."""
        self.judged |= {s.name: verdict.judge(s, self.evaluation.fixture) for s in solutions}
        self.good, self.suspects = ([s for s in group if s not in solutions] for group in (self.good, self.suspects))
        self._end_search()

    def _end_search(self) -> None:
        if self.state == "each alone" and not self.suspects:
            self.state = self.after_search

    # -- what is reported ---------------------------------------------------------------------------------------------

    def _announce(self, why: str) -> None:
        self.again.append(why)
        self.evaluation.progress(f"{self.evaluation.problem.key}: timed again: {why}")

    def _discard(self, experiment: Experiment, solution: Implementation, code: str, detail: str) -> None:
        """Keep a measurement that does not count, with its reason, if anything was measured."""
        if experiment.series:
            samples = {name: times.record() for name, times in experiment.series.items()}
            late = sorted(experiment.launching.late)
            discarded = Discarded(
                solution=solution.name, code=code, detail=detail, launched_late=late, samples_ms=samples
            )
            self.discarded.append(discarded)

    def _with_discarded(self, timing: Timing) -> Timing:
        return timing.model_copy(update={"discarded": self.discarded}) if self.discarded else timing
