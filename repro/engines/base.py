"""The interface of engines: run a list of jobs and yield one outcome for each, whatever happens to a job."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from repro.engines import resources
from repro.engines.resources import Lease
from repro.engines.resources import Progress as Progress
from repro.engines.session import Process, Session, deadline
from repro.errors import EngineGone, JobLost, PrerequisiteError
from repro.records.job import ENDED, JOBS, Job, Outcome
from repro.system import jsonio

# Name, version and isolation of an engine, as a bundle's manifest keeps them.
Description = dict[str, Any]
#: Yields outcomes as the jobs end; returns how the process or container ended ("" if well).
Attempt = Generator[Outcome, None, str]
START_ALLOWANCE_S = 120.0
# How often a job starts again after what ran it has died.
LOST_RETRIES = 3
# On the CPU a job uses about one processor and at most _JOB_BYTES; _MOST_JOBS is the most at once.
_JOB_BYTES, _MOST_JOBS = 8 << 30, 8


@dataclass(frozen=True)
class Slots:
    """How many jobs an engine can run at once. gpus: UUID -> product and memory, "" where NVML does not answer; a job
    each. cpus: jobs at once without a GPU.

    memory: bytes that jobs share, each with a bound; 0 where none has one. many: several machines share the jobs, so
    without a GPU all `cpus` are used, however many jobs are asked for. shared: how many jobs that share have a GPU.
    """

    gpus: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 1
    memory: int = 0
    many: bool = False
    shared: int = 1

    def at_once(self, wanted: int | None = None, *, shares: bool = False) -> int:
        """Return the number of jobs to run at once: one for each GPU, or more that share; without a GPU `wanted`, or as
        many as fit."""
        if wanted is None:
            wanted = min(self.memory // _JOB_BYTES, _MOST_JOBS)
        on_gpus = len(self.gpus) * (self.shared if shares else 1)
        return on_gpus or max(1, self.cpus if self.many else min(wanted, self.cpus))


class Engine:
    """Runs jobs: `capacity`, `submit`, `session` and `close` are all that a caller needs.

    Jobs that are submitted together share a process and a container; submit them one by one to separate them. `submit`
    may be called from several threads. Each call holds at most one GPU, which no other call holds meanwhile, or if its
    jobs share a place on one.

    device: cuda or cpu. contained: whether jobs run in containers. description: name, version and isolation, for the
    bundle. notice: what is wrong with it, though it runs.
    """

    name: str
    device: str
    contained = False
    notice = ""
    description: Description

    def size(self, asked: str = "auto") -> str:
        """Return the size of problems: what was asked for; of `auto` full on a GPU, else smoke."""
        return asked if asked != "auto" else "full" if self.device == "cuda" else "smoke"

    def capacity(self) -> Slots:
        """Return how many jobs run at once. On the CPU they may disturb each other: no time there is a measurement."""
        return Slots()

    def submit(self, jobs: list[Job], progress: Progress) -> Generator[Outcome]:
        """Yield one outcome for every job, in order, each as soon as the job ends.

        A job that ends its process fails alone; the remaining jobs run in a new one. A job whose node dies starts
        again, at most LOST_RETRIES times.
        """
        pending = {job.id: job for job in jobs}
        losses: dict[str, list[str]] = {}
        while pending:
            try:
                ending = yield from self._once(pending, progress)
            except EngineGone as error:
                yield from (Outcome(name, "lost", error=str(error)) for name in pending)
                return
            except JobLost as error:
                reasons = losses.setdefault(next(iter(pending), ""), [])
                reasons.append(str(error))
                if len(reasons) <= LOST_RETRIES:
                    progress(f"starting again after a loss: {error}")
                    continue
                ending = f"lost {len(reasons)} times: {'; '.join(reasons)}"
            if pending:
                name = next(iter(pending))
                del pending[name]
                yield Outcome(name, "failed", error=ending or "the job left no outcome")

    def _once(self, pending: dict[str, Job], progress: Progress) -> Attempt:
        """Run the jobs in `pending` once; yield the first outcome of each, and remove its job."""
        timeout_s = sum(job.timeout_s for job in pending.values()) + START_ALLOWANCE_S
        with contextlib.closing(self._attempt(list(pending.values()), timeout_s, progress)) as attempt:
            while True:
                try:
                    outcome = next(attempt)
                except StopIteration as end:
                    return str(end.value)
                if pending.pop(outcome.job, None) is not None:
                    yield outcome

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Progress) -> Attempt:
        """Run jobs in one process or container, which is ended too if the generator is closed early.

        Raises EngineGone if the engine itself no longer answers.
        """
        with self._process("job", jobs, progress) as process:
            with deadline(timeout_s, process.kill) as late:
                yield from follow(process.lines(), progress, process.outcomes)
                ending = process.ending()
            return f"timed out after {timeout_s:.0f} s and was killed" if late.is_set() else ending

    @contextlib.contextmanager
    def session(self, job: Job, progress: Progress) -> Iterator[Session]:
        """Open a judge's session in a process or container of its own, with a GPU of its own if this engine has any.

        job: of the verb `session`; its `timeout_s` bounds each request. Open and close it in one thread: the process
        ends with the thread that started it. Raises EngineError, and PrerequisiteError if it cannot be opened.
        """
        with self._process("session", [job], progress) as process:
            session = Session(process, job.timeout_s + START_ALLOWANCE_S, progress)
            yield session
            session.close()

    def _process(self, verb: str, jobs: list[Job], progress: Progress) -> AbstractContextManager[Process]:
        """Start `repro VERB` on a folder with the files of some jobs, with a GPU if this engine has any; end it with
        the block."""
        raise PrerequisiteError(f"no session runs on the engine {self.name}", "", "Use --engine local or docker.")

    def look(self, program: str) -> str:
        """Run a short Python program (standard library alone) where jobs run; return its output.

        Raises EngineError if it fails.
        """
        raise PrerequisiteError(f"no program runs on the engine {self.name}", "", "Use --engine local or docker.")

    def close(self, *, now: bool = False) -> None:
        """End what other threads run, and start nothing more.

        Jobs are killed. now: everything of this run is killed and
        removed.
        """


def known_gpus(leases: list[Lease]) -> dict[str, str]:
    """Return UUID -> product and memory of some GPUs of this machine."""
    known = resources.kinds() if leases else {}
    return {str(lease.gpu): known.get(str(lease.gpu), "") for lease in leases}


def inbox(jobs: list[Job]) -> dict[str, bytes]:
    """Return the files of a job folder: the jobs and the files that they name, under separate names for each."""
    if len(jobs) > 1:
        jobs = [job.apart(f"{at}_") for at, job in enumerate(jobs)]
    files = {JOBS: jsonio.lines(job.to_json() for job in jobs)}
    for job in jobs:
        files |= job.files
    return files


def follow(lines: Iterable[str], progress: Progress, read: Callable[[], str]) -> Iterator[Outcome]:
    """Yield the outcomes of a job process while it prints.

    At each line that says that a job ended, and at the end, yield the new outcomes of the text that `read` returns.
    Other lines are progress.
    """
    yielded = 0
    for line in itertools.chain(lines, [ENDED]):
        if line != ENDED:
            progress(line)
            continue
        ended = outcomes(read())
        yield from ended[yielded:]
        yielded = len(ended)


def outcomes(text: str) -> list[Outcome]:
    """Return the outcomes in an outcomes file's text; an incomplete last line is left out."""
    return [Outcome.from_json(line) for line in jsonio.lines_of(text)]
