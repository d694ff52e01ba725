"""The interface of what fills an arm of the study."""

from __future__ import annotations

from typing import Protocol

from repro.problems.catalogue import Problem
from repro.studies.evaluation import Submission


class Agent(Protocol):
    """Submits solutions of each problem. label: where they come from.

    control: a negative control, which must be found wrong. torch_control: the problem's own Model with flags set.
    """

    name: str
    label: str
    control: bool
    torch_control: bool

    def repeats(self, problem: Problem) -> int:
        """Return how many solutions of a problem it submits, at least 1."""
        ...

    def solve(self, problem: Problem, repeat: int) -> Submission:
        """Return one solution of a problem; repeat counts from 0. Raises UsageError if there is none."""
        ...
