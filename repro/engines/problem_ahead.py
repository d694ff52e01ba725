"""The problem of a job at its sizes, with what is derived for it; those of later jobs meanwhile."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import NoFunction, ReproError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.system.prctl import PR_SET_PDEATHSIG, prctl

if TYPE_CHECKING:
    from repro.problems.sizes import Sizes
    from repro.records.job import Job


# Options of a job that times solutions.
TIMED = ("timing", "parity", "kernelbench")


@dataclass(frozen=True)
class Settled:
    """A job's problem, and what a call takes where it is not known to fit into memory. refused: why nothing can judge
    a solution of it, or None."""

    problem: Problem
    measured: Sizes | None
    refused: NoFunction | None = None

    def fitting(self, device: str) -> Problem:
        """Return the problem.

        Raises PrerequisiteError where this machine has too little memory for it, NoFunction where nothing can judge a
        solution of it.
        """
        from repro.problems import sizes

        if self.refused is not None:
            raise self.refused
        if self.measured is not None:
            sizes.require_memory(self.problem, self.measured, device)
        return self.problem


def settle(job: Job, folder: Path) -> Settled:
    """Return a job's problem at its sizes. What suites.toml says of a shipped one is derived for others.

    Raises ReproError.
    """
    import torch

    from repro.problems import derive, sizes

    ours = _ours(job)
    small = ours and job.size == "smoke" and not job.overrides
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, what is run at reduced sizes takes 2 to 5 times as long
    try:
        problem = sizes.settle(_loaded(job, folder), job.overrides, known=ours)
        # A profile needs far less than judging, and a problem with a fixture was judged before.
        measured = None if job.verb == "profile" or job.fixture or small else sizes.measure(problem)
        try:
            return Settled(problem if ours else derive.complete(problem), measured)
        except NoFunction as error:
            return Settled(problem, None, error)
    finally:
        torch.set_num_threads(threads)


def _ours(job: Job) -> bool:
    return not job.problem.endswith(".py") or bool(job.variant and catalogue.id_in(job.variant))


def _loaded(job: Job, folder: Path) -> Problem:
    if job.problem.endswith(".py"):
        known = catalogue.id_in(job.variant) if job.variant else None
        loaded = catalogue.load_file(folder / job.problem, dtype=job.dtype, size=job.size)
        return catalogue.as_known(loaded, known) if known else replace(loaded, id=job.called or loaded.id)
    return catalogue.load(job.problem, size=job.size, dtype=job.dtype)


class Ahead:
    """Settles the problems of a folder's later jobs while others are judged.

    It does so in a process of its own, because torch's global generator forbids a thread. Make it before this
    process has threads or a CUDA context, which a fork could not use. Nothing starts where nothing is to be derived, or
    where a job times solutions, which the process would disturb.
    """

    def __init__(self, jobs: Sequence[Job], folder: Path) -> None:
        timed = any(job.verb == "evaluate" and getattr(job.options, name) for job in jobs for name in TIMED)
        judging = [job for job in jobs[1:] if job.verb in ("fixture", "evaluate")]
        later = [job for job in judging if not (timed or _ours(job))]
        self.awaited = {job.id for job in later}
        self.folder = folder
        if later:
            context = multiprocessing.get_context("fork")
            self.told, tell = context.Pipe(duplex=False)
            context.Process(target=_settle_all, args=(later, folder, tell), daemon=True).start()
            tell.close()

    def settle(self, job: Job) -> Settled:
        """Return a job's problem. Raises ReproError."""
        while job.id in self.awaited:
            try:
                name, found = self.told.recv()
            except (EOFError, OSError):  # it was killed
                self.awaited.clear()
                break
            self.awaited.discard(name)
            if name == job.id and isinstance(found, ReproError):
                raise found
            if name == job.id and isinstance(found, Settled):
                return found
        return settle(job, self.folder)


def _settle_all(jobs: Sequence[Job], folder: Path, tell: Connection) -> None:
    """Tell of every job its id and its problem, the error, or None for the job to meet another error itself."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for job in jobs:
        found: Settled | ReproError | None = None
        try:
            found = settle(job, folder)
        except ReproError as error:
            found = error
        except Exception:  # noqa: S110
            pass
        with contextlib.suppress(BrokenPipeError):
            tell.send((job.id, found))
