"""Runs work over an engine's slots: worker threads take it in order and feed one bundle; Ctrl-C stops them.

_Work is a batch of rows, or an agent's sitting and then its rows. The main thread waits, and handles signals: the first
one starts nothing more, ends the jobs and lets agents submit; the second one kills everything. Rows that ended before
are in the bundle either way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.engines.base import Progress as Step
from repro.errors import EngineError, EngineGone, ReproError
from repro.records import row as record
from repro.records import wording
from repro.records.fixture import FixtureRecord
from repro.records.job import Job, Outcome
from repro.records.result import JudgeResult
from repro.records.verdict import Reason
from repro.runs.progress import Progress
from repro.runs.rows import Row, keep
from repro.runs.status import Board
from repro.system import signals

_Work = Callable[[], object]
_POLL_S = 0.2
# Time to end after the second signal.
_LAST_S = 20.0


class Interrupted(ReproError):
    """The run was ended by Ctrl-C; measured rows are kept."""

    exit_code = 130


class Schedule:
    """One run: its worker threads, the bundle that they feed, and how it stops.

    done: ids of the rows that the bundle holds already. jobs: how many jobs may run at once without a GPU, None for as
    many as fit. shares: whether jobs share GPUs, if the engine lets them. at_once: how many run at once. stopping: set
    as soon as nothing more may start.
    """

    def __init__(
        self,
        engine: Engine,
        bundle: Bundle,
        progress: Progress,
        summarise: Callable[[record.Row], str],
        done: Collection[str],
        *,
        jobs: int | None = None,
        shares: bool = False,
    ) -> None:
        self.engine, self.bundle, self.progress, self.summarise = engine, bundle, progress, summarise
        capacity = engine.capacity()
        self.at_once = capacity.at_once(jobs, shares=shares)
        self.shares = shares and bool(capacity.gpus) and capacity.shared > 1
        self.stopping = threading.Event()
        self._slots = threading.BoundedSemaphore(self.at_once)
        self._board = Board(bundle.path, progress)
        self._plan: list[str] = bundle.manifest["plan"]
        self._ended = set(done)
        self._todo: deque[_Work] = deque()
        bundle.manifest["engine"] = engine.description | {"device": engine.device}

    def run(self, work: Sequence[_Work], workers: int) -> None:
        """Do all work, `workers` pieces at once, and close the bundle. Call it in the main thread.

        Raises the first error of a piece, after the others have stopped, or Interrupted.
        """
        with signals.held() as heard:
            with self.progress.live(), contextlib.closing(self._board):
                self._todo.extend(work)
                failure = self._work(min(workers, len(work)), heard)
            if heard():
                self._interrupted()
            if failure is not None:
                lost = isinstance(failure, EngineGone)
                text = failure.what if isinstance(failure, EngineGone) else str(failure) or type(failure).__name__
                self.bundle.finish("incomplete" if lost else "failed", error=text)
                raise failure
            self.bundle.finish("complete" if all(map(self.bundle.done, self._plan)) else "incomplete")

    def _work(self, workers: int, heard: Callable[[], int]) -> BaseException | None:
        """Run worker threads until the work is done or they have stopped; return the first error.

        heard: returns how many signals have come.
        """
        if not self._todo:
            return None
        self._at_next()
        pool = ThreadPoolExecutor(workers, "run")
        pending = {pool.submit(self._take) for _ in range(workers)}
        failure: BaseException | None = None
        late = float("inf")
        while pending and time.monotonic() < late:
            ended, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            self._board.write()
            failure = failure or next(filter(None, (worker.exception() for worker in ended)), None)
            if (failure or heard()) and not self.stopping.is_set():
                if heard():
                    self.progress.say("interrupted: stopping, and keeping what is done; interrupt again to kill it")
                self.stopping.set()
                self.engine.close()
            if heard() > 1 and late == float("inf"):
                self.progress.say("interrupted again: killing everything")
                late = time.monotonic() + _LAST_S
                self.engine.close(now=True)
        pool.shutdown(wait=False)
        return failure

    def _take(self) -> None:
        """Do piece after piece until none is left or the run stops. Runs in a worker thread."""
        while not self.stopping.is_set():
            try:
                piece = self._todo.popleft()
            except IndexError:
                return
            piece()

    def _interrupted(self) -> None:
        self.bundle.finish("interrupted")
        left = [name for name in self._plan if not self.bundle.done(name) or name not in self._ended]
        kept = f"{len(self._plan) - len(left)} of {len(self._plan)} rows are in {self.bundle.path}"
        if left:
            kept += f"; unfinished: {wording.listed(left)}"
        raise Interrupted("interrupted", kept, "Repeat with --resume to go on.")

    def measure(self, rows: Sequence[Row], shares: bool | None = None) -> None:
        """Run the jobs of rows together in one process or container, when a slot is free, and keep their outcomes.

        A row without a job is kept as `unmet`. Outcomes that stopping the run has caused are not kept. Rows that are to
        be measured again become the last piece of work, and so do those that failed where a GPU is shared: memory may
        have been short. They share none then. Raises EngineGone once the engine went away.
        """
        by_job, again, lost = {}, [], list[str]()
        shares = self.shares if shares is None else shares
        for row in rows:
            if row.job is None:
                self.keep(row, Outcome(row.id, "unmet", error=row.error))
            else:
                by_job[row.job.id] = row, row.job
        with self._slots, self.progress.lane([row.id for row in rows]) as step:
            jobs = [self._job(row, job, shares=shares) for row, job in by_job.values() if not self.stopping.is_set()]
            with contextlib.closing(_outcomes(self.engine, jobs, step)) as outcomes:
                for outcome in outcomes:
                    if outcome.status != "done" and self.stopping.is_set():
                        return
                    row, _ = by_job[outcome.job]
                    if (shares and self._crowded(row, outcome)) or self.keep(row, outcome):
                        again.append(row)
                    lost += [outcome.error] * (outcome.status == "lost")
        if again:
            self._todo.append(partial(self.measure, again, shares=False))
        if lost:
            raise EngineGone(lost[0].rstrip("."), f"the rows measured before are in {self.bundle.path}")

    def _crowded(self, row: Row, outcome: Outcome) -> bool:
        """Return whether a job failed where a GPU is shared, and say so."""
        if why := _failure(outcome):
            self.progress.say(f"{row.id}: to be run again alone, it failed beside others: {why}")
        return bool(why)

    def _job(self, row: Row, job: Job, *, shares: bool) -> Job:
        """Return the job of a row. If it is measured again, the job avoids the GPU that was throttled."""
        last = self.bundle.record(row.id) if self.bundle.done(row.id, row.content) else None
        avoid = last.gpu_uuid_hash if last and last.due else None
        return replace(job, avoid=avoid or job.avoid, shares=shares)

    def keep(self, row: Row, outcome: Outcome) -> bool:
        """Write a row's outcome into the bundle and report it; return whether the row is to be measured again."""
        with self.bundle.lock:
            kept = keep(self.bundle, row, outcome)
            if outcome.status == "done" and kept.due:
                self.progress.say(f"{row.id}: to be measured again, {kept.due}")
                return True
            self._ended.add(row.id)
            self.progress.at(len(self._ended), len(self._plan))
            why = wording.reason(Reason(code=outcome.status, detail=outcome.error))
            self.progress.done(f"{row.id}: {self.summarise(kept) if outcome.status == 'done' else why}")
            self._at_next()
        return False

    def _at_next(self) -> None:
        self.progress.at(min(len(self._ended) + 1, len(self._plan)), len(self._plan))


def _failure(outcome: Outcome) -> str:
    """Return why a job failed, or what it judged, or a class of a fixture for lack of memory; "" if none did."""
    result = outcome.result
    judged = result.results if isinstance(result, JudgeResult) else []
    lacking = result.refused_classes.values() if isinstance(result, FixtureRecord) else ()
    whys = [outcome.error or outcome.status] if outcome.status in ("failed", "unmet") else []
    whys += [entry.verdict for entry in judged if entry.verdict in ("error", "timeout")]
    return [*whys, *(why for why in lacking if "memory" in why or "ALLOC_FAILED" in why), ""][0]


def _outcomes(engine: Engine, jobs: list[Job], step: Step) -> Generator[Outcome]:
    """Yield the engine's outcomes. If it refuses a job, the jobs without an outcome fail, but not the run."""
    seen = set()
    try:
        with contextlib.closing(engine.submit(jobs, step)) as outcomes:
            for outcome in outcomes:
                seen.add(outcome.job)
                yield outcome
    except EngineError as error:
        for job in jobs:
            if job.id not in seen:
                yield Outcome(job.id, "failed", error=str(error))
