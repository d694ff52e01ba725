"""Runs a study with an agent: sittings side by side, each judged when its agent has finished, in one resumable bundle.

A unit has two stages. The agent works in a container of its own beside its gateway. Then each of its problems is judged
with `--trust audited` in a fresh container. A row of the bundle is one judged problem; failures are rows too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from repro.bundle.write import Bundle
from repro.engines.agent import AgentJob, AgentOutcome
from repro.errors import UsageError
from repro.problems import catalogue
from repro.records.agent import AgentRecord
from repro.records.job import Outcome
from repro.records.row import Planned, Sitting
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.rows import Row
from repro.runs.schedule import Schedule
from repro.studies import evaluation
from repro.studies.agent import attempts, design, prerequisites, sittings, study
from repro.studies.agent.agent import Agent
from repro.studies.agent.design import Design, Unit
from repro.studies.agent.purse import Purse, Spent, cost_usd
from repro.studies.evaluation import Submission

# Judged in place of a missing solution, so that the judge's own verdict is in its row.
MISSING = evaluation.absent("", "the agent left no solution of this problem").source


@dataclass(frozen=True)
class Pace:
    """How a study is run, without effect on its results. wait_s: seconds before a second attempt. run_usd: the money of
    the whole run, None for no limit."""

    jobs: int = 1
    retries: int = 2
    wait_s: float = 10.0
    run_usd: float | None = None


def row_id(unit: Unit, problem: str) -> str:
    """Return the id of the row of one of a unit's problems."""
    return f"{problem}/{unit.arm}/{unit.repeat}"


class Campaign:
    """The units of a study as work of a schedule: an agent's sitting, then the judging of its rows."""

    def __init__(self, run: Run, plan: Design, pace: Pace, schedule: Schedule) -> None:
        self.run, self.design, self.size, self.results, self.pace = run, plan, run.size, run.results, pace
        self.schedule, self.bundle, self.engine = schedule, schedule.bundle, schedule.engine
        self.purse = Purse(pace.run_usd, plan.budgets.usd or 0.0)

    def work(self, order: Sequence[Unit], controls: Sequence[Row]) -> list[Callable[[], None]]:
        """Return the units that are not complete, and after them the controls, which need no agent."""
        for unit in order:
            record = attempts.read(self.bundle, unit)
            made = record.attempts if record else []
            self.purse.spent_usd += sum(cost_usd(attempt, self.purse.each_usd) for attempt in made)
        measure = self.schedule.measure
        return [
            *(partial(self._unit, unit) for unit in order if not self._whole(unit)),
            *(partial(measure, [row]) for row in controls if not self.bundle.done(row.id, row.content)),
        ]

    def _whole(self, unit: Unit) -> bool:
        """Return whether a unit's agent has finished and each of its rows was judged from its submission."""
        record = attempts.finished(self.bundle, unit)
        return record is not None and all(
            self.bundle.done(row.id, row.content) for row in self._rows(unit, record, judge=False)
        )

    def _unit(self, unit: Unit) -> None:
        """Run the agent's sitting, unless it has finished before, and judge what the agent submitted."""
        try:
            record = attempts.finished(self.bundle, unit) or self._sit(unit)
        except Spent as error:
            for problem in sittings.loaded(unit, self.size) if not self.schedule.stopping.is_set() else []:
                row = Row(Planned(row=row_id(unit, problem.key), problem=problem.key, arm=unit.arm), None)
                self.schedule.keep(row, Outcome(row.id, "unmet", error=str(error)))
            return
        if record.finished:
            for row in self._rows(unit, record):
                if not self.bundle.done(row.id, row.content):
                    self.schedule.measure([row])
        elif not self.schedule.stopping.is_set():
            why = f"{record.klass} failure in each of {len(record.attempts)} attempts: {record.detail}"
            for row in self._rows(unit, record, judge=False):
                self.schedule.keep(row, Outcome(row.id, "failed", error=why))

    def _sit(self, unit: Unit) -> AgentRecord:
        """Run an agent's sitting, again after a failure that the agent did not cause; return its record."""
        job = sittings.build(self.design, unit, self.size, self.results, self.engine, share=1 / self.pace.jobs)
        keys = attempts.secrets(self.design, unit)
        say = self.schedule.progress.say
        with self.schedule.progress.lane([unit.id]) as step:
            step(f"{unit.id}: the agent works")
            record = attempts.Attempts(self.bundle, unit, self.design, self.bundle.file).run(
                lambda: self._paid(job, keys, step), self.pace.retries, self.pace.wait_s,
                self.schedule.pause, say,
            )  # fmt: skip
        say(f"{unit.id}: {summary_line(record)}")
        return record

    def _paid(self, job: AgentJob, keys: dict[str, str], step: Callable[[str], None]) -> AgentOutcome:
        """Run an agent whose budget is set aside. Raises Spent if the run's does not suffice."""
        with self.purse.sitting(self.schedule.pause) as settle:
            left = self.engine.run_agent(job, keys, step)
            settle(left)
        return left

    def _rows(self, unit: Unit, record: AgentRecord, *, judge: bool = True) -> list[Row]:
        """Return one row for each problem of a unit. judge: False ignores missing fixtures, for looking only."""
        found = []
        for problem in sittings.loaded(unit, self.size):
            place = record.solutions.get(problem.path.name) if record.finished else None
            source = (self.bundle.path / place).read_bytes() if place else MISSING
            entry = evaluation.entry_of(source) if place else "ModelNew"
            name = row_id(unit, problem.key)
            sitting = Sitting(job=unit.id, status=record.status, detail=record.detail, solution=bool(place),
                              record=f"{unit.folder}/{attempts.RECORD}")  # fmt: skip
            described = Planned(row=name, problem=problem.key, arm=unit.arm, control=False, torch_control=False,
                                repeat=unit.repeat, agent=sitting)  # fmt: skip
            submission = Submission(problem.path.stem, source, entry)
            build = partial(evaluation.job, self.run, name, problem, [submission], repeat=unit.repeat)
            found.append(evaluation.row_for(described, build) if judge or record.finished else Row(described, None))
        return found


def summary_line(record: AgentRecord) -> str:
    """Return one line on how an agent's job ended."""
    spent = record.meter.usd
    words = [record.status + (f": {record.detail}" if record.detail else "")]
    words.append(f"{record.meter.turns} turns")
    words.append("cost unknown" if spent is None else f"{spent:.2f} USD" + " by scripted usage" * record.scripted)
    if record.knowledge != "none":
        words.append(f"{record.meter.kb.calls} knowledge calls")
    return ", ".join(words)


def run(run: Run, plan: Design, only: list[str], pace: Pace, *, controls: Sequence[Agent] = ()) -> Bundle:
    """Run a study with an agent; return the bundle. Controls are judged after the agents' solutions.

    Raises PrerequisiteError before anything starts if a fixture is refused, or if the CLI or a knowledge server is
    missing; Interrupted; EngineError.
    """
    if run.options.trust != "audited":
        raise UsageError("an agent's study is judged with --trust audited", "--trust dev is only for the agent itself")
    wanted = catalogue.suite("agent", size=run.size, only=only)
    order = design.units(plan, [problem.id for problem in wanted])
    prerequisites.check(plan, run.engine)
    fixtures.ensure(run, wanted)
    for unit in order:
        sittings.build(plan, unit, run.size, run.results, run.engine, share=1.0)
    rows = [
        Row(Planned(row=row_id(unit, problem.key)), None)
        for unit in order
        for problem in sittings.loaded(unit, run.size)
    ]
    more = [study.row(run, problem, arm, 0)[0] for problem in wanted for arm in controls]
    parameters = run.parameters() | {
        "agent": plan.agent,
        "arms": {arm: plan.label(arm) for arm in plan.arms} | {arm.name: arm.label for arm in controls},
        "repeats": plan.repeats,
        "study": design.config(plan, order).to_json(),
    }
    bundle = run.open("run", [*rows, *more], parameters)
    begin = time.monotonic()
    done = [name for name in bundle.manifest["plan"] if bundle.done(name)]
    schedule = Schedule(run.engine, bundle, run.progress, evaluation.summary, done, jobs=pace.jobs)
    bundle.manifest["engine"]["jobs"] = pace.jobs
    schedule.run(Campaign(run, plan, pace, schedule).work(order, more), pace.jobs)
    run.progress.say(f"{len(order)} jobs in {time.monotonic() - begin:.0f} s")
    return bundle
