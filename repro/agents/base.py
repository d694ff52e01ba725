"""The interface of an agent in the study."""

from __future__ import annotations

from typing import Protocol

from repro.evaluation import Submission
from repro.problems import Problem


class Agent(Protocol):
    """Submits one solution for each problem. `label` says where its solutions come from."""

    name: str
    label: str
    control: bool

    def solve(self, problem: Problem) -> Submission:
        """Return the solution of one problem. Raises UsageError if there is none."""
        ...
