"""What an agent is to the study."""

from __future__ import annotations

from typing import Protocol

from repro.evaluation import Submission
from repro.problems import Problem


class Agent(Protocol):
    """Hands in one solution a problem. `label` says plainly where its solutions come from."""

    name: str
    label: str
    control: bool

    def solve(self, problem: Problem) -> Submission:
        """The solution of one problem. Raises UsageError where there is none."""
        ...
