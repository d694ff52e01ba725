"""A job of the verb `session`: one JudgeSession that serves requests until the one to close.

`repro session FOLDER` reads the job from FOLDER/jobs.jsonl. Requests come as JSON lines on standard input, see
`records.session`. Each gets one answer on standard output, a line that begins with ANSWER; so does the start. Other
lines are progress. The end of standard input ends the process at once, whatever it does, since the process that would
read the answer has ended.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from repro.engines import job as jobs
from repro.engines.settled import settle
from repro.errors import ReproError, UsageError
from repro.judge.processes import pool
from repro.system import jsonio
from repro.system.digest import sha256

if TYPE_CHECKING:
    from repro.judge.session import JudgeSession
    from repro.records.base import Record
    from repro.records.job import Job
    from repro.records.session import Check, Source, Time, Times, Verdicts


class _Wire:
    """The requests to this process and its answers, over the standard streams that it began with.

    Solutions of trust `dev` run in this process. So that their output cannot be taken for an answer, standard output
    becomes standard error, and standard input is empty.
    """

    def __init__(self) -> None:
        self._requests = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._requests:
            self._queue.put(request := json.loads(line))
            if request["op"] == "close":
                return
        os._exit(1)

    def requests(self) -> Iterator[Check | Time]:
        """Yield requests until the one to close."""
        from repro.records.session import REQUEST, Close

        while not isinstance(request := REQUEST.validate_python(self._queue.get()), Close):
            yield request

    def progress(self, line: str) -> None:
        """Write one line of progress."""
        self._answers.write(f"{line}\n")

    def answer(self, value: Record) -> None:
        """Write one answer."""
        from repro.records.job import ANSWER  # the launcher needs no pydantic

        self._answers.write(f"{ANSWER}{jsonio.dumps(value.to_json())}\n")

    def refuse(self, error: Exception) -> None:
        """Answer with an error."""
        from repro.records.session import Refused

        unmet = isinstance(error, ReproError) and error.exit_code == 1
        text = str(error) if isinstance(error, ReproError) else f"{type(error).__name__}: {error}"
        self.answer(Refused(error=text, status="unmet" if unmet else "failed"))


def serve(folder: Path, owner: str = "") -> int:
    """Serve the session of a folder. owner: as for `begin`."""
    (job,) = jobs.begin(folder, owner)
    wire = _Wire()
    try:
        _serve(job, folder, wire)
    except ReproError as error:
        wire.refuse(error)
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        wire.refuse(error)
        return 2
    finally:
        pool.close()
    return 0


def _serve(job: Job, folder: Path, wire: _Wire) -> None:
    jobs.prepare(job)
    machine = jobs.fingerprint_of(job)
    from repro.judge.session import JudgeSession
    from repro.records.session import Opened

    jobs.require_device(job)
    settled = settle(job, folder)
    problem = settled.fitting(job.device)
    with JudgeSession(
        problem, jobs.fixture_of(job, folder, settled, wire.progress), job.options, wire.progress
    ) as session:
        wire.answer(Opened(fingerprint=machine, ceilings=session.reached, room=session.room()))
        served = _Served(session, folder)
        for request in wire.requests():
            try:
                wire.answer(served.answer(request))
            except ReproError as error:
                wire.refuse(error)


@dataclass
class _Served:
    """A session with the sources of its solutions, which are files in the job's folder."""

    session: JudgeSession
    folder: Path
    digests: dict[str, str] = field(default_factory=dict)  # solution -> hash of the source that was checked
    full: dict[str, str] = field(default_factory=dict)  # the same of full checks

    def answer(self, request: Check | Time) -> Verdicts | Times:
        """Return the answer to one request. Raises ReproError."""
        from repro.records.session import Check, Times, Verdicts

        before = self.session.spent_s()
        due = {solution.name: _digest(solution.source) for solution in request.solutions}
        if isinstance(request, Check):
            keep = [name for name in request.keep if name in due and self.full.get(name) == due[name]]
            for name in due:
                self.digests.pop(name, None)
            entries = self.session.check([self._kept(solution) for solution in request.solutions], request.tier, keep)
            self.digests |= due
            self.full |= due if request.tier == "full" else {}
            return Verdicts(entries=entries, spent_s=self._spent_s(before))
        for name, digest in due.items():
            if (self.digests if request.tier == "screen" else self.full).get(name) != digest:
                raise UsageError(f"this source of {name} has no verdict in this session", "", "Check it.")
        return Times(result=self.session.time(list(due), request.tier), spent_s=self._spent_s(before))

    def _spent_s(self, before: dict[str, float]) -> dict[str, float]:
        now = self.session.spent_s()
        return {n: round(s - before.get(n, 0.0), 3) for n, s in now.items() if s > before.get(n, 0.0)}

    def _kept(self, solution: Source) -> tuple[str, Path, str]:
        """Write a source into the job's folder; return the solution. A later source of the name replaces it."""
        file = self.folder / f"candidate_{_digest(solution.name)}.py"
        file.write_bytes(solution.source.encode(errors="surrogateescape"))
        return solution.name, file, solution.entry


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape"))
