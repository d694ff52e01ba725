"""What judging the solutions of one problem shares: buffers, workers, the reference, comparison and trials."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from repro.errors import JudgeError
from repro.judge.correctness.comparison import Comparison
from repro.judge.correctness.expected import Expected
from repro.judge.correctness.trials import Trials
from repro.judge.correctness.workers import Workers
from repro.judge.gpu.input_buffers import Slots
from repro.judge.implementation import Options, Progress
from repro.problems import plan as plans
from repro.problems.catalogue import Problem
from repro.problems.plan import Plan
from repro.records.fixture import Fixture


@dataclass
class Evaluation:
    """The judge's state for one problem.

    mark: is called with `warm` and `timed` around a timing.
    """

    problem: Problem
    fixture: Fixture
    options: Options
    progress: Progress
    mark: Progress

    def __post_init__(self) -> None:
        problem, fixture, options = self.problem, self.fixture, self.options
        device = torch.device(options.device)
        plan = plans.plan(problem)
        native = plans.weights(problem, plan.module)
        if native.sha256 != fixture.weights_sha256:
            what = f"the weights of {problem.key} differ from the fixture's"
            why = "another torch version may initialise differently"
            raise JudgeError(what, why, "Run `repro fixtures` again on this stack.")
        self.expected = Expected(plan, native, device, fixture.usual)
        self.slots = Slots(plan, self.expected.shape.spec, self.expected.shape.rows, device)
        self.workers = Workers(problem, self.slots, options)
        self.comparison = Comparison(fixture, self.expected, self.workers)
        self.trials = Trials(problem, self.workers, self.comparison, options, self.progress)

    @property
    def plan(self) -> Plan:
        """Return the plan of the problem at its own shape."""
        return self.expected.shape.plan

    def close(self) -> None:
        """End every worker and free the buffers."""
        self.workers.end(*self.workers.solutions)
        self.slots.close()
