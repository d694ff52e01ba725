"""The interface of engines: run a list of jobs and yield one outcome for each, whatever happens to a job."""

from __future__ import annotations

import abc
import contextlib
import copy
import itertools
import json
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from repro.engines import resources
from repro.engines.agent import AgentJob, AgentOutcome
from repro.engines.resources import Lease
from repro.engines.session import Session
from repro.errors import EngineError, EngineGone, JobLost, PrerequisiteError
from repro.records.job import ENDED, JOBS, Job, Outcome
from repro.system import jsonio, removal

Progress = Callable[[str], None]
#: Yields outcomes as the jobs end; returns how the process or container ended ("" if well).
Attempt = Generator[Outcome, None, str]
START_ALLOWANCE_S = 120.0
# How often a job starts again after what ran it has died.
LOST_RETRIES = 3
# On the CPU a job uses about one processor and at most JOB_BYTES; MOST_JOBS is the most at once.
JOB_BYTES, MOST_JOBS = 8 << 30, 8


@dataclass(frozen=True)
class Slots:
    """How many jobs an engine can run at once. gpus: their UUIDs, a job each. cpus: jobs at once without a GPU.

    memory: bytes that jobs share, each with a bound; 0 where none has one. many: several machines share the jobs, so
    without a GPU all `cpus` are used, however many jobs are asked for.
    """

    gpus: tuple[str, ...] = ()
    cpus: int = 1
    memory: int = 0
    many: bool = False

    def at_once(self, wanted: int | None = None) -> int:
        """Return the number of jobs to run at once: one for each GPU; without a GPU `wanted`, or as many as fit."""
        if wanted is None:
            wanted = min(self.memory // JOB_BYTES, MOST_JOBS)
        return len(self.gpus) or max(1, self.cpus if self.many else min(wanted, self.cpus))


class Engine(abc.ABC):
    """Runs jobs. Jobs given together share a process and a container; call `run` for each to separate them.

    `run`, `attempt` and `run_agent` may be called from several threads. Each call holds at most one GPU, which no other
    call holds meanwhile.
    """

    name: str
    device: str
    #: Whether jobs run in containers.
    contained = False
    gpus: list[Lease]

    def kinds(self) -> dict[str, str]:
        """Return UUID -> product and memory of the GPUs that jobs may use."""
        known = resources.kinds() if self.gpus else {}
        return {lease.gpu: known[lease.gpu] for lease in self.gpus if lease.gpu in known}

    def bound(self, gpu: str) -> Self:
        """Return this engine with one of its GPUs alone, which keeps its share of processors and memory."""
        one = copy.copy(self)
        one.gpus = [lease for lease in self.gpus if lease.gpu == gpu]
        return one

    def capacity(self) -> Slots:
        """Return how many jobs run at once. On the CPU they may disturb each other: no time there is a measurement."""
        return Slots()

    @abc.abstractmethod
    def attempt(self, jobs: list[Job], timeout_s: float, progress: Progress) -> Attempt:
        """Run jobs in one process or container, which is ended too if the generator is closed early.

        Raises EngineGone if the engine itself no longer answers.
        """

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return name, version and isolation, for the bundle."""

    def session(self, job: Job, progress: Progress) -> AbstractContextManager[Session]:
        """Open a judge's session in a process or container of its own, with a GPU of its own if this engine has any.

        job: of the verb `session`; its `timeout_s` bounds each request. Open and close it in one thread: the process
        ends with the thread that started it. Raises EngineError, and PrerequisiteError if it cannot be opened.
        """
        raise PrerequisiteError(f"no session runs on the engine {self.name}", "", "Use --engine local or docker.")

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        """Run one agent beside its gateway, with a GPU of its own if this engine has any.

        secrets: keys, which only the gateway's standard input receives. Raises EngineError if the engine refuses,
        EngineGone if it no longer answers.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}")

    def look(self, program: str) -> str:
        """Run a short Python program (standard library alone) where agents and gateways run; return its output.

        Raises EngineError if it fails.
        """
        raise PrerequisiteError(f"no agent runs on the engine {self.name}")

    def halt(self) -> None:  # noqa: B027
        """End what `run_agent` and `attempt` run in other threads, and start nothing more.

        Jobs are killed. Agents get SIGTERM, and their files are still read.
        """

    def kill(self) -> None:  # noqa: B027
        """Kill and remove everything of this run at once."""

    def run(self, jobs: list[Job], progress: Progress) -> Generator[Outcome]:
        """Yield one outcome for every job, in order, each as soon as the job ends.

        A job that ends its process fails alone; the remaining jobs run in a new one. A job whose node dies starts
        again, at most LOST_RETRIES times.
        """
        pending = list(jobs)
        losses: dict[str, list[str]] = {}
        while pending:
            timeout_s = sum(job.timeout_s for job in pending) + START_ALLOWANCE_S
            left = {job.id: job for job in pending}
            try:
                ending = yield from self._first(self.attempt(pending, timeout_s, progress), left)
            except EngineGone as error:
                for name in left:
                    yield Outcome(name, "lost", error=str(error))
                return
            except JobLost as error:
                if not left:  # the last outcome had come
                    return
                first, *rest = left.values()
                known = losses.setdefault(first.id, [])
                known.append(str(error))
                pending = [first, *rest]
                progress(f"starting again after a loss: {error}")
                if len(known) > LOST_RETRIES:
                    yield Outcome(first.id, "failed", error=f"lost {len(known)} times: {'; '.join(known)}")
                    pending = rest
                continue
            pending = list(left.values())
            if pending:
                yield Outcome(pending.pop(0).id, "failed", error=ending or "the job left no outcome")

    @staticmethod
    def _first(attempt: Attempt, left: dict[str, Job]) -> Attempt:
        """Yield an attempt's first outcome of each job in `left`, and remove that job from it."""
        ending = ""
        with contextlib.closing(attempt):
            while True:
                try:
                    outcome = next(attempt)
                except StopIteration as end:
                    ending = str(end.value)
                    break
                if left.pop(outcome.job, None) is not None:
                    yield outcome
        return ending


def inbox(jobs: list[Job]) -> dict[str, bytes]:
    """Return the files of a job folder: the jobs and the files that they name, under separate names for each."""
    if len(jobs) > 1:
        jobs = [job.apart(f"{at}_") for at, job in enumerate(jobs)]
    files = {JOBS: "".join(jsonio.dumps(job.to_json()) + "\n" for job in jobs).encode()}
    for job in jobs:
        files |= job.files
    return files


def follow(lines: Iterable[str], progress: Progress, read: Callable[[], str]) -> Iterator[Outcome]:
    """Yield the outcomes of a job process while it prints.

    At each line that says that a job ended, and at the end, yield the new outcomes of the text that `read` returns.
    Other lines are progress.
    """
    told = 0
    for line in itertools.chain(lines, [ENDED]):
        if line != ENDED:
            progress(line)
            continue
        found = outcomes(read())
        yield from found[told:]
        told = len(found)


def outcomes(text: str) -> list[Outcome]:
    """Return the outcomes in an outcomes file's text; an incomplete last line is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Outcome.from_json(json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder that is removed after the block, whatever untrusted code left there. Raises EngineError."""
    try:
        root = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise no_folder(error) from error
    try:
        yield root
    finally:
        removal.remove(root)


def no_folder(error: OSError) -> EngineError:
    """Return the error of a temporary folder that could not be made."""
    return EngineError("cannot make a temporary folder", error.strerror or str(error), "Free disk space.")
