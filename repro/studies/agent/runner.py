"""Runs a study with an agent: jobs side by side, each judged when its agent has finished, in a bundle that can resume.

A job has two stages. The agent works in a container of its own beside its gateway. Then each of its problems is judged
with `--trust audited` in a fresh container. A row of the bundle is one judged problem; failures are rows too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import EngineError, EngineGone, UsageError
from repro.problems import catalogue
from repro.records.job import Outcome
from repro.runs import fixtures
from repro.runs.loop import Interrupted, Row, keep, open_bundle
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.studies.agent import attempts, design, prerequisites, sittings, study
from repro.studies.agent.agent import Agent
from repro.studies.agent.design import Design, Unit
from repro.studies.evaluation import JudgeOptions, Submission

# Judged in place of a missing solution, so that the judge's own verdict is in its row.
MISSING = evaluation.absent("", "the agent left no solution of this problem").source
# Time to end after the second signal.
LAST_S = 20.0


@dataclass(frozen=True)
class Pace:
    """How a study is run, without effect on its results. wait_s: seconds before a second attempt."""

    jobs: int = 1
    retries: int = 2
    wait_s: float = 10.0


def row_id(unit: Unit, problem: str) -> str:
    """Return the id of the row of one of a unit's problems."""
    return f"{problem}/{unit.arm}/{unit.repeat}"


class Campaign:
    """One run of a study."""

    def __init__(
        self, plan: Design, order: list[Unit], size: str, results: Path, engine: Engine, options: JudgeOptions,
        pace: Pace, bundle: Bundle, progress: Progress, controls: Sequence[Row] = (),
    ) -> None:  # fmt: skip
        self.design, self.order, self.size, self.results, self.controls = plan, order, size, results, controls
        self.engine, self.options, self.pace, self.bundle, self.progress = engine, options, pace, bundle, progress
        self.stopping = threading.Event()
        self._writing, self._judging = threading.Lock(), threading.Lock()
        self._todo: deque[Unit | Row] = deque()
        self.lost = ""

    def run(self) -> None:
        """Run every unit that is not complete. Finished work is kept. Raises Interrupted, EngineError."""
        todo = [unit for unit in self.order if not self._whole(unit)]
        if len(todo) < len(self.order):
            there = len(self.order) - len(todo)
            self.progress.say(f"resuming {self.bundle.path}: {there} of {len(self.order)} cells are there")
        self._todo = deque([*todo, *(row for row in self.controls if not self.bundle.done(row.id, row.content))])
        pool = ThreadPoolExecutor(max(1, min(self.pace.jobs, len(self._todo))), "job")
        workers = [pool.submit(self._work) for _ in range(min(self.pace.jobs, len(self._todo)))]
        try:
            with self.progress.live():
                _follow(workers)
        except KeyboardInterrupt:
            self._interrupt(workers)
        except Exception as error:
            self._halt(workers)
            self.bundle.finish("failed", error=str(error) or type(error).__name__)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _interrupt(self, workers: list[Future[None]]) -> None:
        """End on a signal. First signal: start no job, let agents end and submit. Second signal: kill everything."""
        self.progress.say("interrupted: ending the agents and keeping their work; interrupt again to kill them")
        try:
            self._halt(workers)
        except KeyboardInterrupt:
            self.progress.say("interrupted again: killing everything")
            self.engine.kill()
            wait(workers, timeout=LAST_S)
        with self._writing:
            self.bundle.finish("interrupted", error="the run was interrupted")
        done = sum(self.bundle.done(name) for name in self.bundle.manifest["plan"])
        unfinished = [unit.id for unit in self.order if not self._whole(unit)]
        named = ", ".join(unfinished[:8]) + (f" and {len(unfinished) - 8} more" if len(unfinished) > 8 else "")
        raise Interrupted(
            "interrupted", f"{done} of {len(self.bundle.manifest['plan'])} rows are in {self.bundle.path}; "
            f"unfinished: {named}", "Repeat with --resume to go on.",
        )  # fmt: skip

    def _halt(self, workers: list[Future[None]]) -> None:
        self.stopping.set()
        self._todo.clear()
        self.engine.halt()
        wait(workers)

    def _whole(self, unit: Unit) -> bool:
        """Return whether a unit's agent has finished and each of its rows was judged from its submission."""
        record = attempts.finished(self.bundle, unit)
        return record is not None and all(
            self.bundle.done(row.id, row.content) for row in self._rows(unit, record, judge=False)
        )

    def _work(self) -> None:
        """Take units until none is left or the run stops. Runs in a worker thread."""
        while not self.stopping.is_set():
            try:
                item = self._todo.popleft()
            except IndexError:
                return
            if isinstance(item, Row):  # a control, which needs no agent
                self._judge(item)
            else:
                self._unit(item)

    def _unit(self, unit: Unit) -> None:
        record = attempts.finished(self.bundle, unit)
        if record is None:
            self.progress.step(f"{unit.id}: the agent works")
            job = sittings.build(self.design, unit, self.size, self.results, self.engine, share=1 / self.pace.jobs)
            keys = attempts.secrets(self.design, unit)
            tries = attempts.Attempts(self.bundle, unit, self.design, self._write)
            record = tries.run(
                lambda: self.engine.run_agent(job, keys, self.progress.step), self.pace.retries, self.pace.wait_s,
                self._pause, self.progress.say,
            )  # fmt: skip
            self.progress.say(f"{unit.id}: {summary_line(record)}")
        if record["finished"]:
            for row in self._rows(unit, record):
                if not self.bundle.done(row.id, row.content):
                    self._judge(row)
        elif not self.stopping.is_set():
            why = f"{record['class']} failure in each of {len(record['attempts'])} attempts: {record['detail']}"
            for row in self._rows(unit, record, judge=False):
                self._keep(row, Outcome(row.id, "failed", error=why))

    def _pause(self, seconds: float) -> bool:
        """Wait. Return whether the run is being stopped."""
        return self.stopping.wait(seconds) if seconds else self.stopping.is_set()

    def _judge(self, row: Row) -> None:
        """Judge one row in a fresh container, alone on its GPU."""
        if row.job is None:
            self._keep(row, Outcome(row.id, "unmet", error=row.error))
            return
        alone = self._judging if self.engine.device != "cuda" else threading.Lock()  # on a GPU the lease does this
        with alone:
            if self.stopping.is_set():
                return
            try:
                found = list(self.engine.run([row.job], self.progress.step))
            except EngineGone:
                raise
            except EngineError as error:
                found = [Outcome(row.id, "failed", error=str(error))]
        for outcome in found:
            if outcome.status == "lost":
                raise EngineGone(outcome.error.rstrip("."), f"the rows measured before are in {self.bundle.path}")
            if outcome.status == "done" or not self.stopping.is_set():
                self._keep(row, outcome)

    def _rows(self, unit: Unit, record: dict[str, Any], *, judge: bool = True) -> list[Row]:
        """Return one row for each problem of a unit. judge: False ignores missing fixtures, for looking only."""
        found = []
        for problem in sittings.loaded(unit, self.size):
            place = record["solutions"].get(problem.path.name) if record["finished"] else None
            source = (self.bundle.path / place).read_bytes() if place else MISSING
            entry = evaluation.entry_of(source) if place else "ModelNew"
            name = row_id(unit, problem.key)
            columns = {
                "problem": problem.key, "arm": unit.arm, "control": False, "torch_control": False,
                "repeat": unit.repeat,
                "agent": {"job": unit.id, "status": record["status"], "detail": record["detail"],
                          "solution": bool(place), "record": f"{unit.folder}/{attempts.RECORD}"},
            }  # fmt: skip
            submission = Submission(problem.path.stem, source, entry)

            def build(problem: Any = problem, submission: Submission = submission, name: str = name) -> Any:
                return evaluation.job(name, problem, [submission], self.results, self.engine, self.options,
                                       repeat=unit.repeat)  # fmt: skip

            if judge or record["finished"]:
                found.append(evaluation.row_for(name, build, columns))
            else:
                found.append(Row(name, None, columns))
        return found

    def _write(self, name: str, content: bytes) -> None:
        with self._writing:
            self.bundle.file(name, content)

    def _keep(self, row: Row, outcome: Outcome) -> None:
        with self._writing:
            plan = self.bundle.manifest["plan"]
            self.progress.at(1 + sum(self.bundle.done(name) for name in plan), len(plan))
            keep(self.bundle, row, outcome, self.progress, evaluation.summary)


def summary_line(record: dict[str, Any]) -> str:
    """Return one line on how an agent's job ended."""
    meter = record["meter"]
    spent = meter.get("usd")
    words = [record["status"] + (f": {record['detail']}" if record["detail"] else "")]
    words.append(f"{meter.get('turns', 0)} turns")
    words.append("cost unknown" if spent is None else f"{spent:.2f} USD" + " by scripted usage" * record["scripted"])
    if record["knowledge"] != "none":
        words.append(f"{meter.get('kb', {}).get('calls', 0)} knowledge calls")
    return ", ".join(words)


def _follow(workers: list[Future[None]]) -> None:
    """Wait for all workers; the first error ends the wait and is raised."""
    pending = set(workers)
    while pending:
        done, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        for each in done:
            each.result()


def run(
    plan: Design, only: list[str], size: str, results: Path, engine: Engine, options: JudgeOptions, pace: Pace,
    progress: Progress, *, controls: Sequence[Agent] = (), resume: bool,
) -> tuple[Bundle, list[dict[str, Any]]]:  # fmt: skip
    """Run a study with an agent; return the bundle and its rows. Controls are judged after the agents' solutions.

    Raises PrerequisiteError before anything starts if a fixture is refused, or if the CLI or a knowledge server is
    missing; Interrupted; EngineError.
    """
    if options.trust != "audited":
        raise UsageError("an agent's study is judged with --trust audited", "--trust dev is only for the agent itself")
    wanted = catalogue.suite("agent", size=size, only=only)
    order = design.units(plan, [problem.id for problem in wanted])
    prerequisites.check(plan, engine)
    fixtures.ensure(wanted, results, engine, progress, resume=resume)
    for unit in order:
        sittings.build(plan, unit, size, results, engine, share=1.0)
    rows = [Row(row_id(unit, problem.key), None) for unit in order for problem in sittings.loaded(unit, size)]
    more = [study.row(problem, arm, 0, results, engine, options)[0] for problem in wanted for arm in controls]
    parameters = {
        "agent": plan.agent,
        "arms": {arm: plan.label(arm) for arm in plan.arms} | {arm.name: arm.label for arm in controls},
        "repeats": plan.repeats,
        "size": size,
        "device": engine.device,
        "options": options.for_job(engine.device),
        "study": plan.to_json() | {"order_of_cells": [unit.id for unit in order], "balance": design.balance(order)},
    }
    bundle = open_bundle(results, "run", [*rows, *more], parameters, progress, resume=resume)
    bundle.manifest["engine"] = engine.describe() | {"device": engine.device, "jobs": pace.jobs}
    begin = time.monotonic()
    Campaign(plan, order, size, results, engine, options, pace, bundle, progress, more).run()
    progress.say(f"{len(order)} cells in {time.monotonic() - begin:.0f} s")
    whole = all(bundle.done(name) for name in bundle.manifest["plan"])
    bundle.finish("complete" if whole else "incomplete")
    return bundle, [bundle.rows[name] for name in bundle.manifest["plan"] if name in bundle.rows]
