"""Arms of the study whose solutions exist already: the interface, and the solutions that ship with the project."""

from __future__ import annotations

from dataclasses import dataclass

from repro import config
from repro.errors import UsageError
from repro.problems.catalogue import Problem
from repro.studies.evaluation import Submission, read


@dataclass
class Agent:
    """Submits solutions of each problem. label: where they come from. times: how many of a problem, at least 1.

    control: a negative control, which must be found wrong. torch_control: the problem's own Model with flags set.
    """

    name: str
    label: str
    times: int = 1
    control: bool = False
    torch_control: bool = False

    def repeats(self, problem: Problem) -> int:
        """Return how many solutions of a problem it submits."""
        return self.times

    def solve(self, problem: Problem, repeat: int) -> Submission:
        """Return one solution of a problem; repeat counts from 0. Raises UsageError if there is none."""
        raise NotImplementedError


@dataclass
class Oracle(Agent):
    """Reads the hand-written artifacts/oracle/ID_Name.py, as often as asked. Never an agent's result."""

    name: str = "oracle"
    label: str = "hand-written solutions shipped with repro, not an agent's"

    def solve(self, problem: Problem, repeat: int) -> Submission:
        file = config.ORACLE_DIR / problem.path.name
        if not file.exists():
            raise UsageError(f"the oracle has no solution of {problem.id}", f"{file} does not exist")
        return read(file)
