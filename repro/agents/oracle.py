"""Hand-written solutions shipped with the project. Never an agent's result."""

from __future__ import annotations

from repro import settings
from repro.errors import UsageError
from repro.evaluation import Submission, read
from repro.problems import Problem


class Oracle:
    """Reads artifacts/oracle/ID_Name.py."""

    name = "oracle"
    label = "hand-written solutions shipped with repro, not an agent's"
    control = False

    def solve(self, problem: Problem) -> Submission:
        """Return the shipped solution. Raises UsageError if the problem has none."""
        file = settings.ORACLE_DIR / problem.path.name
        if not file.exists():
            raise UsageError(f"the oracle has no solution of {problem.id}", f"{file} does not exist")
        return read(file)
