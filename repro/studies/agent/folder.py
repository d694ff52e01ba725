"""Solutions in a folder, by problem: what an agent that ran elsewhere has left. Nothing in it says what wrote them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from repro.artifacts import sources
from repro.errors import UsageError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import wording
from repro.studies.agent.agent import Agent
from repro.studies.evaluation import Submission, absent, read

FORMS = "L1_36_x.py, L1_36/solution.py and level_1_problem_36_sample_0_kernel.py"
KERNELBENCH = re.compile(r"level_(\d)_problem_(\d+)_sample_\d+_kernel\.py")
SOLUTION = "solution.py"


@dataclass
class Folder(Agent):
    """One arm. samples: problem id -> its files in order, each a repeat. unused: other names in the folder."""

    samples: dict[str, list[Path]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def repeats(self, problem: Problem) -> int:
        """Return how many files a problem has; 1 without a file, because the problem is still a row."""
        return max(1, len(self.samples.get(problem.id, ())))

    def solve(self, problem: Problem, repeat: int) -> Submission:
        """Return a file's text, or a stand-in that says why there is none. Raises UsageError for an unreadable file."""
        files = self.samples.get(problem.id)
        if not files:
            return absent(problem.path.stem, f"no file of {problem.id} in the folder")
        found = read(files[repeat])
        return Submission(problem.path.stem, found.source, found.entry, sources.withheld(files[repeat]))


def scan(name: str, path: Path) -> Folder:
    """Return the arm `name` with the solutions of a folder.

    A problem's files are those of the forms in FORMS; `solution.py` may lie deeper, and a problem's folder may hold one
    other `.py` file in its place. Hidden files and `__pycache__` are left out. Raises UsageError if no file is of a
    problem of the study.
    """
    if not path.is_dir():
        raise UsageError(f"no such folder: {path}", "--solutions names an arm and the folder of its solutions")
    wanted = catalogue.suites()["agent"]
    samples: dict[str, list[Path]] = {}
    unused = []
    for item in sorted(path.iterdir(), key=_natural):
        if _hidden(item.name):
            continue
        match = KERNELBENCH.fullmatch(item.name)
        problem = catalogue.id_in("L{}_{}".format(*match.groups()) if match else item.name)
        files = _files(item) if problem in wanted else []
        if problem is not None and files:
            samples.setdefault(problem, []).extend(files)
        else:
            unused.append(item.name + "/" * item.is_dir())
    if not samples:
        raise UsageError(
            f"no solution in {path}", "no file in it is named after a problem of the agent study",
            f"These forms are read: {FORMS}.",
        )  # fmt: skip
    return Folder(name, wording.FROM_FOLDER, samples=samples, unused=unused)


def _files(item: Path) -> list[Path]:
    """Return the solutions of one problem: a file itself, or those of its folder."""
    if not item.is_dir():
        return [item] * (item.suffix == ".py" and item.is_file())
    every = [file for file in sorted(item.rglob("*.py"), key=_natural)
             if file.is_file() and not any(map(_hidden, file.relative_to(item).parts))]  # fmt: skip
    return [file for file in every if file.name == SOLUTION] or every * (len(every) == 1)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key by which sample 2 comes before sample 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]
