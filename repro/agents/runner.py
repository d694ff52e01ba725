"""`repro run` with an agent: the study as an Inspect evaluation whose log lies in the bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from inspect_ai import eval as evaluate
from inspect_ai.log import EvalLog
from inspect_ai.model import Model

from repro.agents import brief, knowledge, models, sandbox, task
from repro.agents.study import Study, cost, finished, read, row_id
from repro.bundle.write import Bundle
from repro.errors import EngineError, PrerequisiteError, UsageError
from repro.problems import catalogue
from repro.records.row import Planned
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.rows import Row, ended
from repro.runs.schedule import Schedule
from repro.studies import evaluation
from repro.studies.agent import design, study
from repro.studies.agent.agent import Agent
from repro.studies.agent.design import Design, Pace, Unit

LOGS = "logs"
#: Runs where agents do.
LOOK = "import shutil; print(shutil.which('claude') or '')"


def run(run: Run, plan: Design, only: list[str], pace: Pace, *, controls: Sequence[Agent] = ()) -> Bundle:
    """Run a study with an agent; return the bundle. Controls are judged after the agents' solutions.

    Raises PrerequisiteError before anything starts if a fixture is refused, or if a key, the CLI or a knowledge server
    is missing; Interrupted; EngineError.
    """
    engine, progress = run.engine, run.progress
    wanted = catalogue.suite("agent", size=run.size, only=only)
    order = design.units(plan, [problem.id for problem in wanted])
    _check(run, plan)
    rates = next(iter(plan.prices.get("models", {}).values()), None)
    model = models.opened(plan.upstream, plan.model, rates, pace.jobs)
    fixtures.ensure(run, wanted)
    for unit in order:
        brief.files(unit, run.size, engine.device, run.results)
    more = [study.row(run, problem, arm, 0)[0] for problem in wanted for arm in controls]
    bundle = _opened(run, plan, order, more, controls)
    begin = time.monotonic()
    done = [name for name in bundle.manifest["plan"] if bundle.done(name)]
    schedule = Schedule(engine, bundle, progress, evaluation.summary, done, jobs=pace.jobs)
    bundle.manifest["engine"]["jobs"] = pace.jobs
    found = Study(plan, run, pace, {unit.id: unit for unit in order}, schedule)
    records = filter(None, (read(bundle, unit) for unit in order))
    found.spent_usd = sum(cost(attempt, plan.budgets.usd) for record in records for attempt in record.attempts)
    late = [row for row in more if not ended(bundle, row)]
    schedule.run([*_left(found, bundle, model), *(partial(schedule.measure, [row]) for row in late)], 1)
    progress.say(f"{len(order)} jobs in {time.monotonic() - begin:.0f} s")
    return bundle


def _left(found: Study, bundle: Bundle, model: Model) -> list[Callable[[], object]]:
    """Return the work that a study lacks: the verdicts of sittings that have ended, then all other sittings at once."""
    units = list(found.units.values())
    waiting = [unit for unit in units if finished(bundle, unit) is None]
    unjudged = [unit for unit in units if unit not in waiting and not found.whole(unit)]
    work: list[Callable[[], object]] = [partial(found.judge, unit) for unit in unjudged]
    return [*work, partial(_sit, found, waiting, bundle.path / LOGS, model)] if waiting else work


def _sit(found: Study, units: list[Unit], logs: Path, model: Model) -> None:
    """Let Inspect run some sittings. Raises EngineError if it could begin none."""
    jobs = found.pace.jobs
    sandbox.use(found.engine, 1 / jobs)
    log = evaluate(
        task.of(found, units), model=model, log_dir=str(logs), log_format="eval", display="none", max_samples=jobs,
        retry_on_error=found.pace.retries, fail_on_error=False, log_model_api=False, ctl_server=False,
        acp_server=False, score_display=False,
    )[0]  # fmt: skip
    _explain(found, log)


def _check(run: Run, plan: Design) -> None:
    """Raise UsageError or PrerequisiteError for what a sitting would lack."""
    if run.options.trust != "audited":
        raise UsageError("an agent's study is judged with --trust audited", "--trust dev is only for the agent itself")
    for arm in plan.arms:
        knowledge.check(plan.knowledge(arm))
    if plan.agent == "claude-code" and not run.engine.look(LOOK).strip():
        raise PrerequisiteError(
            "Claude Code is not installed where agents run", f"no `claude` in the PATH of the engine {run.engine.name}",
            "Build the image with it: make image CLAUDE_CODE=ADDRESS (docs/agent-study.md), or choose --agent sdk.",
        )  # fmt: skip


def _opened(run: Run, plan: Design, order: list[Unit], more: list[Row], controls: Sequence[Agent]) -> Bundle:
    """Return the bundle of a study. more: the rows of its controls."""
    rows = [
        Row(Planned(row=row_id(unit, problem.key)), None) for unit in order for problem in brief.loaded(unit, run.size)
    ]
    parameters = run.parameters() | {
        "agent": plan.agent,
        "arms": {arm: plan.label(arm) for arm in plan.arms} | {arm.name: arm.label for arm in controls},
        "repeats": plan.repeats,
        "study": design.config(plan, order).to_json(),
    }
    return run.open("run", [*rows, *more], parameters)


def _explain(found: Study, log: EvalLog) -> None:
    """Keep a failed row for what Inspect could not even begin. Raises EngineError if it could begin nothing."""
    if log.status == "error" and log.error is not None:
        raise EngineError("Inspect failed", log.error.message.strip().splitlines()[-1])
    if found.stopping.is_set():
        return
    for sample in log.samples or []:
        unit = found.units[str(sample.id)]
        if sample.error is not None and unit.id not in found.failed and found.record(unit) is None:
            found.fail(unit, "failed", sample.error.message.strip().splitlines()[-1])
