"""A study with an agent: its sittings side by side, each judged when its agent has ended, in one resumable bundle.

A sitting is a sample of the Inspect task (`task.py`). When its agent has ended, each of its problems is judged with
`--trust audited` in a fresh container. A row of the bundle is one judged problem; failures are rows too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from inspect_ai.util import LimitScope

from repro.agents import brief
from repro.agents.knowledge import LOG
from repro.agents.sitting import Sitting
from repro.bundle.write import Bundle
from repro.engines.submission import Basket
from repro.errors import BundleError, PrerequisiteError
from repro.records import reading, wording
from repro.records.agent import AgentAttempt, AgentRecord
from repro.records.job import Outcome
from repro.records.row import Planned
from repro.records.row import Sitting as SittingOfRow
from repro.records.verdict import Reason
from repro.runs.loop import Run
from repro.runs.rows import Row, ended
from repro.runs.schedule import Schedule
from repro.studies import evaluation
from repro.studies.agent.design import Design, Pace, Unit
from repro.studies.evaluation import Submission
from repro.system import jsonio

RECORD = "job.json"
# Longest wait between two attempts, s.
LONGEST_S = 600.0
# Judged in place of a missing solution, so that the judge's own verdict is in its row.
MISSING = evaluation.absent("", "the agent left no solution of this problem").source


class Again(Exception):
    """A sitting failed, and the agent did not cause it: Inspect tries it again."""


def cost(attempt: AgentAttempt, budget: float | None) -> float:
    """Return what an attempt cost, USD; the whole budget where that is not known and it has asked a model."""
    if attempt.usd is not None:
        return attempt.usd
    return (budget or 0.0) if attempt.turns else 0.0


def row_id(unit: Unit, problem: str) -> str:
    """Return the id of the row of one of a unit's problems."""
    return f"{problem}/{unit.arm}/{unit.repeat}"


@dataclass
class Study:
    """The sittings of a design. schedule: judges and keeps rows in a bundle; without one nothing is kept.

    spent_usd: by every attempt so far. failed: ids of the units whose rows were kept as not measured.
    """

    design: Design
    run: Run
    pace: Pace = field(default_factory=Pace)
    units: dict[str, Unit] = field(default_factory=dict)
    schedule: Schedule | None = None
    spent_usd: float = 0.0
    failed: set[str] = field(default_factory=set)
    _reserved: int = 0
    _tries: dict[str, int] = field(default_factory=dict)
    _records: dict[str, AgentRecord] = field(default_factory=dict)
    _sources: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine, self.size, self.results = self.run.engine, self.run.size, self.run.results
        self.stopping = self.schedule.stopping if self.schedule is not None else threading.Event()

    # -- money

    @asynccontextmanager
    async def turn(self, unit: Unit) -> AsyncIterator[Sitting]:
        """Set a sitting's budget aside while the block runs; wait while other sittings may leave enough.

        So all sittings have equal budgets, and the run's is exceeded by no more than the last reply of each. What a
        sitting leaves goes back. Raises PrerequisiteError if the run's money does not suffice; its rows then say so.
        """
        each, whole = self.design.budgets.usd or 0.0, self.pace.run_usd
        while whole is not None and whole - self.spent_usd - self._reserved * each < each:
            if self._reserved == 0 or self.stopping.is_set():
                error = PrerequisiteError(
                    f"the run's budget is spent: {self.spent_usd:.2f} of {whole:.2f} USD",
                    f"a sitting may cost {each:.2f} USD", "Repeat with --resume and a larger --budget run_usd=N.",
                )  # fmt: skip
                self.fail(unit, "unmet", str(error))
                raise error
            await anyio.sleep(0.5)
        self._reserved += 1
        record = self.record(unit)
        sitting = Sitting(self.design, unit, list(record.attempts) if record else [])
        tried = self._tries[unit.id] = self._tries.get(unit.id, 0) + 1
        sitting.waited_s = min(self.pace.wait_s * 2 ** (tried - 2), LONGEST_S) if tried > 1 else 0.0
        try:
            await self._wait(sitting.waited_s)
            yield sitting
        finally:
            self._reserved -= 1
            if len(sitting.made) > (len(record.attempts) if record else 0):
                self.spent_usd += cost(sitting.made[-1], each)

    async def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stopping.is_set():
            await anyio.sleep(0.2)

    # -- records

    def record(self, unit: Unit) -> AgentRecord | None:
        """Return the record of a unit, or None if there is none that can be read."""
        if self.schedule is None:
            return self._records.get(unit.id)
        return read(self.schedule.bundle, unit)

    async def keep(
        self, sitting: Sitting, error: BaseException | None, scope: LimitScope | None, basket: Basket
    ) -> None:
        """Write the record of an attempt that has ended. Raises Again if it does not count."""
        unit = sitting.unit
        sitting.wall_s = time.monotonic() - sitting.begin
        names = {problem.path.name for problem in brief.loaded(unit, self.size)}
        kept = {name: source for name, source in basket.files.items() if name in names}
        ending, detail = sitting.ended(error, scope, len(kept))
        folder = f"{unit.folder}/attempt-{len(sitting.made) + 1}"
        places = {name: f"{folder}/solutions/{name}" for name in sorted(kept)}
        record = sitting.record(ending, detail, places, basket.cut, folder)
        self._records[unit.id] = record
        self._sources |= {places[name]: source for name, source in kept.items()}
        if self.schedule is not None:
            bundle = self.schedule.bundle
            for name, source in kept.items():
                bundle.file(places[name], source)
            bundle.file(f"{folder}/{LOG}", jsonio.lines(sitting.log.calls))
            bundle.file(f"{unit.folder}/{RECORD}", jsonio.render(record.to_json()))
            self.schedule.progress.say(f"{unit.id}: {summary_line(record)}")
        if record.finished:
            return
        if ending != "interrupted" and self._tries[unit.id] > self.pace.retries:
            why = f"{record.klass} failure in each of {len(record.attempts)} attempts: {record.detail}"
            self.fail(unit, "failed", why)
        raise Again(f"{ending}: {detail}")

    def fail(self, unit: Unit, status: str, why: str) -> None:
        """Keep every row of a unit as not measured."""
        self.failed.add(unit.id)
        if self.schedule is None or self.stopping.is_set():
            return
        for problem in brief.loaded(unit, self.size):
            row = Row(Planned(row=row_id(unit, problem.key), problem=problem.key, arm=unit.arm), None)
            self.schedule.keep(row, Outcome(row.id, status, error=why))  # type: ignore[arg-type]

    # -- judging

    def whole(self, unit: Unit) -> bool:
        """Return whether a unit's agent has finished and each of its rows was judged from its submission."""
        assert self.schedule is not None
        bundle = self.schedule.bundle
        return finished(bundle, unit) is not None and all(ended(bundle, row) for row in self.rows(unit))

    def judge(self, unit: Unit) -> dict[str, str]:
        """Judge what a finished sitting left; return the verdict of each problem in words."""
        found = {}
        for row in self.rows(unit):
            if self.schedule is None:
                assert row.job is not None, row.error
                outcome = next(iter(self.engine.submit([row.job], lambda _: None)))
                results = getattr(outcome.result, "results", [])
                found[row.id] = "; ".join(map(wording.word, results)) or outcome.error
                continue
            if not ended(self.schedule.bundle, row):
                self.schedule.measure([row])
            kept = self.schedule.bundle.records().get(row.id)
            words = "; ".join(map(wording.word, kept.verdicts if kept else []))
            found[row.id] = words or wording.reason(Reason(code="failed", detail=kept.error if kept else "stopped"))
        return found

    def rows(self, unit: Unit) -> list[Row]:
        """Return one row for each problem of a unit whose sitting has finished."""
        record, rows = self.record(unit), []
        assert record is not None
        for problem in brief.loaded(unit, self.size):
            place = record.solutions.get(problem.path.name)
            source = self._source(place) if place else MISSING
            name = row_id(unit, problem.key)
            sitting = SittingOfRow(job=unit.id, status=record.status, detail=record.detail, solution=bool(place),
                                   record=f"{unit.folder}/{RECORD}")  # fmt: skip
            described = Planned(row=name, problem=problem.key, arm=unit.arm, control=False, torch_control=False,
                                repeat=unit.repeat, agent=sitting)  # fmt: skip
            submission = Submission(problem.path.stem, source, evaluation.entry_of(source))
            build = partial(evaluation.job, self.run, name, problem, [submission])
            rows.append(evaluation.row_for(described, build))
        return rows

    def _source(self, place: str) -> bytes:
        if place not in self._sources:
            assert self.schedule is not None
            self._sources[place] = (self.schedule.bundle.path / place).read_bytes()
        return self._sources[place]


def read(bundle: Bundle, unit: Unit) -> AgentRecord | None:
    """Return the record of a unit in a bundle, or None if it has none that can be read."""
    name = f"{unit.folder}/{RECORD}"
    try:
        return reading.agent_record((bundle.path / name).read_bytes(), name)
    except (OSError, BundleError):
        return None


def finished(bundle: Bundle, unit: Unit) -> AgentRecord | None:
    """Return the record of a unit with a finished agent and all of its solutions, else None."""
    found = read(bundle, unit)
    if found is None or not found.finished:
        return None
    return found if all((bundle.path / place).is_file() for place in found.solutions.values()) else None


def summary_line(record: AgentRecord) -> str:
    """Return one line on how a sitting ended."""
    spent = record.meter.usd
    words = [record.status + (f": {record.detail}" if record.detail else "")]
    words.append(f"{record.meter.turns} turns")
    words.append("cost unknown" if spent is None else f"{spent:.2f} USD" + " by scripted usage" * record.scripted)
    if record.knowledge != "none":
        words.append(f"{record.meter.kb.calls} knowledge calls")
    return ", ".join(words)
