"""compute-sanitizer over a solution at a reduced size: what `evaluate --check sanitizer` adds to the trials.

Its tools see what no output shows: a load or store outside a tensor, and threads of a block that race. A process like
that of a profile (`timing/counters.py`), with the same weaker isolation, becomes the sanitizer. A tool that did not
finish is an error, never a pass.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

from repro.errors import PrerequisiteError, SolutionError, SolutionRejected
from repro.judge.implementation import Implementation
from repro.judge.timing import counters
from repro.problems import catalogue, sizes
from repro.problems.catalogue import Problem

TRIAL = "sanitizer"
_PROGRAM = "compute-sanitizer"
# The tools and the options of each. Small tensors lie one behind the other: a load beyond one would be in the next.
_TOOLS = {"memcheck": ("--padding", str(64 << 10)), "racecheck": ()}
_TIMEOUT_S = 240.0
# Exit status where a tool finds an error.
_FOUND = 86
# Every tensor has an allocation of its own: torch's allocator would put neighbours behind it.
_ALONE = ("/usr/bin/env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: .*?(\d+) errors?\b", re.MULTILINE)
_LINE = re.compile(r"^=+ +(?!COMPUTE-SANITIZER|\w+ SUMMARY)(\S.*)", re.MULTILINE)


def program() -> str:
    """Return the path of compute-sanitizer. Raises PrerequisiteError."""
    if (found := shutil.which(_PROGRAM)) is None:
        raise PrerequisiteError(f"{_PROGRAM} is not on the PATH", "", "Install the CUDA toolkit, or leave --check out.")
    return found


def check(problem: Problem, solution: Implementation, device: str) -> None:
    """Run every tool over a few calls of a solution.

    Raises SolutionRejected where one finds an error, SolutionError where one did not finish.
    """
    assert solution.source is not None
    small, source = _reduced(problem), solution.source.read_bytes()
    for tool, own in _TOOLS.items():
        options = ("--tool", tool, *own, "--error-exitcode", str(_FOUND), "--report-api-errors", "no",
                   "--target-processes", "application-only")  # fmt: skip
        ran = counters.below([*_ALONE, program(), *options], device, small, source, solution.entry, _TIMEOUT_S)
        errors = [int(count) for count in _SUMMARY.findall(ran.text)]
        said = f"{tool}: {' / '.join(_LINE.findall(ran.text)[:2])}"
        if any(errors) or ran.code == _FOUND:
            raise SolutionRejected("sanitizer", said)
        facts = counters.facts(ran.text)
        if ran.code != 0 or not errors or not facts.get("done"):
            why = ran.late or facts.get("error") or f"it ended with code {ran.code}"
            raise SolutionError("sanitizer_failed", f"{said}; {why}")


def _reduced(problem: Problem) -> Problem:
    """Return a problem at its reduced size."""
    if problem.size == "smoke":
        return problem
    small = replace(problem, size="smoke")
    if catalogue.is_shipped(problem) and problem == catalogue.load(problem.key):
        return catalogue.load(problem.key, size="smoke")
    return replace(small, overrides=sizes.derive(small).overrides)
