"""Hand-written solutions shipped with the project. Never an agent's result."""

from __future__ import annotations

from dataclasses import dataclass

from repro import config
from repro.errors import UsageError
from repro.problems.catalogue import Problem
from repro.studies.evaluation import Submission, read


@dataclass
class Oracle:
    """Reads artifacts/oracle/ID_Name.py, as often as asked."""

    times: int = 1
    name: str = "oracle"
    label: str = "hand-written solutions shipped with repro, not an agent's"
    control: bool = False
    torch_control: bool = False

    def repeats(self, problem: Problem) -> int:
        """Return how often each solution is judged."""
        return self.times

    def solve(self, problem: Problem, repeat: int = 0) -> Submission:
        """Return the shipped solution. Raises UsageError if the problem has none."""
        file = config.ORACLE_DIR / problem.path.name
        if not file.exists():
            raise UsageError(f"the oracle has no solution of {problem.id}", f"{file} does not exist")
        return read(file)
