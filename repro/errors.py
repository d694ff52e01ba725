"""Every error that the tool raises on purpose.

ReproError                     what happened, why, and what to do; printed as one line
├── UsageError          exit 1 a wrong argument, file or problem id
│   └── Unreadable      exit 1 a file is missing, no plain file, too large, or not text
├── PrerequisiteError   exit 1 something the machine lacks: a GPU, a fixture, an engine, disk
├── EngineError         exit 2 an engine failed while it ran jobs
│   ├── EngineGone      exit 2 the engine stopped answering; what was measured is kept
│   └── JobLost         exit 2 what ran a job died, not through the job; it is tried again
├── BundleError         exit 2 a bundle cannot be written or read
├── JudgeError          exit 2 the judge itself failed (never the solution's fault)
│   └── ProblemError    exit 1 the problem file is at fault
└── SolutionError              the solution's fault; becomes a verdict, never ends the run
    ├── SolutionRejected       a rule was broken: reason code and detail
    ├── SolutionTimeout        a bounded wait ran out
    └── SolutionDied           the worker process ended: signal, exit code
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

Fault = Literal["error", "incorrect", "rejected", "timeout"]


def printable(text: str) -> str:
    """Return a text on one line, without terminal control characters and unprintable ones."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in line)


def printable_lines(text: str) -> str:
    """Return the last 40 lines of a text, each as `printable` returns it and at most 500 characters long."""
    lines = (line if len(line) <= 500 else f"{line[:499]}…" for line in text.strip().splitlines()[-40:])
    return "\n".join(map(printable, lines))


def located(error: BaseException) -> str:
    """Return an error with its type, and the file and the line that raised it."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"


def reason_of(error: OSError) -> str:
    """Return why the system refused something, in its own words."""
    return error.strerror or str(error)


class ReproError(Exception):
    """An expected failure: what happened, why and what to do.

    Every other error of the project derives from it. `repro.cli.ending` prints it and exits with `exit_code`.
    """

    exit_code = 2

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(what)

    def __str__(self) -> str:
        line = self.what
        if self.why:
            line += f": {self.why}"
        if self.remedy:
            line += f". {self.remedy}"
        return printable(line)


@contextlib.contextmanager
def refusing(kind: type[ReproError], what: str, remedy: str = "") -> Iterator[None]:
    """Raise what the system refuses in the block as an error of ours, with the system's reason."""
    try:
        yield
    except OSError as error:
        raise kind(what, reason_of(error), remedy) from error


class UsageError(ReproError):
    """The command line, a file or an id is wrong."""

    exit_code = 1


class Unreadable(UsageError):
    """A file cannot be read: it is missing, no plain file, too large, a link out of its folder, or not text."""


class PrerequisiteError(ReproError):
    """The machine lacks what the job needs."""

    exit_code = 1


class EngineError(ReproError):
    """An engine failed while it ran a job."""


class EngineGone(EngineError):
    """The engine stopped answering in the middle of a run."""


class JobLost(EngineError):
    """What ran a job ended: its node, or a process of the engine there. The job is tried again."""


class BundleError(ReproError):
    """A bundle cannot be written or read."""


class JudgeError(ReproError):
    """The judge failed: a fault of the tool or of the problem file, not of a solution."""


class ProblemError(JudgeError):
    """The problem file is at fault."""

    exit_code = 1


class NoFunction(ProblemError):
    """The problem's output is no function of its inputs, so nothing can be compared with it."""


class SolutionError(ReproError):
    """A solution's fault. `code` is the reason code and `verdict` the verdict that it leads to."""

    verdict: Fault = "error"

    def __init__(self, code: str, detail: str = "") -> None:
        text = printable(detail)
        self.code, self.detail = code, text if len(text) <= 900 else f"{text[:300]} ... {text[-580:]}"
        self.trace = ""  # the frames of an exception within the solution's file
        super().__init__(code, self.detail)

    def traced(self, lines: object) -> Self:
        """Return this error with the trace that a worker reports."""
        self.trace = printable_lines("\n".join(map(str, lines)) if isinstance(lines, list) else "")
        return self


class SolutionRejected(SolutionError):
    """A gate refused an output (`incorrect`), or a rule was broken (`rejected`)."""

    RULES = frozenset(
        "banned protocol_tampered impossible_time clocks_disagree background_work baseline_disturbed "
        "deferred_write below_floor".split()
    )
    verdict: Fault = "incorrect"

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code, detail)
        if code in self.RULES:
            self.verdict = "rejected"


def of_worker(code: str, detail: str) -> SolutionError:
    """Return the error of a reason code that a worker gave."""
    return (SolutionRejected if code == "race" or code in SolutionRejected.RULES else SolutionError)(code, detail)


class SolutionTimeout(SolutionError):
    """A bounded wait for the solution ran out."""

    verdict = "timeout"


class SolutionDied(SolutionError):
    """The worker process ended during a request."""
