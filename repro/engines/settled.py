"""The problem of a job at its sizes, with what is derived for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import NoFunction
from repro.problems import catalogue
from repro.problems.catalogue import Problem

if TYPE_CHECKING:
    from repro.problems.sizes import Sizes
    from repro.records.job import Job


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

    known = not job.problem.endswith(".py") or catalogue.id_in(job.variant) is not None
    small = known and job.size == "smoke" and not job.overrides
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, what is run at reduced sizes takes 2 to 5 times as long
    try:
        problem = sizes.settle(_loaded(job, folder), job.overrides, known=known)
        # A profile needs far less than judging, and a problem with a fixture was judged before.
        measured = None if job.verb == "profile" or job.fixture or small else sizes.measure(problem)
        try:
            return Settled(problem if known else derive.complete(problem), measured)
        except NoFunction as error:
            return Settled(problem, None, error)
    finally:
        torch.set_num_threads(threads)


def _loaded(job: Job, folder: Path) -> Problem:
    if not job.problem.endswith(".py"):
        return catalogue.load(job.problem, size=job.size, dtype=job.dtype)
    known = catalogue.id_in(job.variant)
    loaded = catalogue.load_file(folder / job.problem, dtype=job.dtype, size=job.size)
    return catalogue.as_known(loaded, known) if known else replace(loaded, id=job.called or loaded.id)
