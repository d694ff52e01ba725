"""The agent study with shipped solutions, each judged in a cell of its own. `campaign` runs it with real agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from repro import evaluation, fixtures, problems
from repro.agents.base import Agent
from repro.agents.nop import Nop
from repro.agents.oracle import Oracle
from repro.bundle.write import Bundle
from repro.engines import agent_local
from repro.engines.base import Engine
from repro.evaluation import JudgeOptions
from repro.progress import Progress
from repro.runs import ROWS_A_PROCESS, Row, execute, open_bundle

NOTICE = agent_local.NOTICE
AGENTS: dict[str, type[Agent]] = {"oracle": Oracle, "nop": Nop}


def arms(agent: str) -> list[Agent]:
    """Return the arms of a study: the agent, and the negative control."""
    chosen = AGENTS[agent]()
    return [chosen] if chosen.control else [chosen, Nop()]


def plan(
    only: list[str],
    agent: str,
    repeats: int,
    size: str,
    results: Path,
    engine: Engine,
    options: JudgeOptions,
) -> tuple[list[Row], dict[str, bytes]]:
    """Return the rows, and the solutions by file name in the bundle."""
    rows: list[Row] = []
    solutions: dict[str, bytes] = {}
    for problem in problems.suite("agent", size=size, only=only):
        for arm in arms(agent):
            for repeat in range(1 if arm.control else repeats):
                name = f"{problem.key}/{arm.name}/{repeat}"
                columns = {"problem": problem.key, "arm": arm.name, "control": arm.control, "repeat": repeat}

                def build(problem: Any = problem, arm: Agent = arm, repeat: int = repeat, name: str = name) -> Any:
                    submission = arm.solve(problem)
                    solutions[f"solutions/{arm.name}/{repeat}/{problem.path.name}"] = submission.source
                    # The speed of a wrong answer does not matter, so nothing compiles for a control.
                    chosen = replace(options, compiled=False) if arm.control else options
                    return evaluation.cell(name, problem, [submission], results, engine, chosen, repeat=repeat)

                rows.append(evaluation.row_for(name, build, columns))
    return rows, solutions


def run(
    only: list[str],
    agent: str,
    repeats: int,
    size: str,
    results: Path,
    engine: Engine,
    options: JudgeOptions,
    progress: Progress,
    *,
    resume: bool,
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Run the study; return the bundle and its rows."""
    wanted = problems.suite("agent", size=size, only=only)
    fixtures.ensure(wanted, results, engine, progress, resume=resume)
    rows, solutions = plan(only, agent, repeats, size, results, engine, options)
    labels = {arm.name: arm.label for arm in arms(agent)}
    parameters = {
        "agent": agent,
        "arms": labels,
        "repeats": repeats,
        "size": size,
        "device": engine.device,
        "options": options.for_cell(engine.device),
        "control_options": replace(options, compiled=False).for_cell(engine.device),
    }
    bundle = open_bundle(results, "run", rows, parameters, progress, resume=resume)
    for name, source in solutions.items():
        bundle.file(name, source)
    together = ROWS_A_PROCESS if options.trust == "audited" else 1  # safe, since these solutions ship with the project
    judged = execute(rows, engine, bundle, progress, evaluation.summary, together=together)
    bundle.finish("complete" if all(r["status"] == "done" for r in judged) else "incomplete")
    return bundle, judged
