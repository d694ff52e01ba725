"""A judge's session in a job process, from the side of the process that asks it.

    with engine.session(job, progress) as session:
        entries = session.check([submission])
        result = session.time([submission], tier="quick")

`session_server.py` is the other side, and describes the requests.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol, TypeVar

from pydantic import ValidationError

from repro.engines.resources import Progress
from repro.errors import EngineError, PrerequisiteError
from repro.records.base import Record, faults
from repro.records.job import ANSWER
from repro.records.result import JudgeResult
from repro.records.session import (
    Answer,
    Check,
    Checked,
    CheckTier,
    Close,
    Opened,
    Refused,
    Source,
    Tier,
    Time,
    Times,
    Verdicts,
)
from repro.system import jsonio

_CLOSE_TIMEOUT_S = 30.0
A = TypeVar("A", bound=Answer)
R = TypeVar("R", bound=Record)


class _Submitted(Protocol):
    """A solution: its name in results, its source text, and the name that the source must define."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> bytes: ...
    @property
    def entry(self) -> str: ...


class Process(Protocol):
    """The process of a session, as an engine started it."""

    def send(self, line: str) -> None:
        """Write a line to its standard input. Raises OSError if it has ended."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that it prints, until it ends."""

    def kill(self) -> None:
        """End it and its workers at once. Safe to call from another thread."""

    def ending(self) -> str:
        """Return how it ended, after its last line: "" if well."""

    def outcomes(self) -> str:
        """Return the text of its outcomes file; empty if there is none."""


@contextlib.contextmanager
def deadline(seconds: float, kill: Callable[[], None]) -> Iterator[threading.Event]:
    """Kill if the block takes too long; the event is then set."""
    late = threading.Event()

    def expire() -> None:
        late.set()
        kill()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


class Session:
    """A warm judge of one problem. Its methods belong to one thread, and so do its engine's.

    timeout_s bounds the start and each request. `spent_s`: seconds by part of the latest request.
    """

    def __init__(self, process: Process, timeout_s: float, progress: Progress) -> None:
        self._process, self._timeout_s, self._progress = process, timeout_s, progress
        self._lines = process.lines()
        self.spent_s: dict[str, float] = {}
        self.opened = self._answer(Opened)

    def check(
        self, submissions: Sequence[_Submitted], tier: CheckTier = "full", keep: Sequence[str] = ()
    ) -> list[Checked]:
        """Judge whether solutions are right, without timing; return one verdict each.

        tier, keep: see JudgeSession.check. Raises EngineError if the session failed, and PrerequisiteError if the
        request cannot be met.
        """
        request = Check(op="check", solutions=_sources(submissions), tier=tier, keep=list(keep))
        return self._ask(request, Verdicts).entries

    def time(self, submissions: Sequence[_Submitted], tier: Tier = "full") -> JudgeResult:
        """Time checked solutions beside each other and the baselines.

        Raises as `check` does, and PrerequisiteError for a source that was not checked.
        """
        return self._ask(Time(op="time", solutions=_sources(submissions), tier=tier), Times).result

    def close(self) -> None:
        """Have the session end, and wait until its process has ended; kill it if that takes too long."""
        with contextlib.suppress(OSError), deadline(_CLOSE_TIMEOUT_S, self._process.kill):  # OSError: it has ended
            self._send(Close(op="close"))
            for line in self._lines:
                if not line.startswith(ANSWER):
                    self._progress(line)

    def _ask(self, request: Record, form: type[A]) -> A:
        try:
            self._send(request)
        except OSError:
            self._ended()
        answer = self._answer(form)
        self.spent_s = answer.spent_s
        return answer

    def _send(self, request: Record) -> None:
        self._process.send(jsonio.dumps(request.to_json()) + "\n")

    def _answer(self, form: type[R]) -> R:
        """Return the next answer; lines before it are progress."""
        try:
            with deadline(self._timeout_s, self._process.kill) as late:
                for line in self._lines:
                    if not line.startswith(ANSWER):
                        self._progress(line)
                        continue
                    answer = json.loads(line.removeprefix(ANSWER))
                    if "error" in answer:
                        refused = Refused.model_validate(answer)
                        raise (PrerequisiteError if refused.status == "unmet" else EngineError)(refused.error)
                    return form.model_validate(answer)
        except ValidationError as error:
            raise EngineError("the answer of the judge's session is damaged", "; ".join(faults(error))) from error
        if late.is_set():
            raise EngineError(f"the session did not answer within {self._timeout_s:.0f} s and was killed")
        self._ended()

    def _ended(self) -> NoReturn:
        raise EngineError("the judge's session ended", self._process.ending())


def _sources(submissions: Sequence[_Submitted]) -> list[Source]:
    return [Source(name=s.name, entry=s.entry, source=s.source.decode(errors="surrogateescape")) for s in submissions]
