"""The agent study with solutions that exist already, each judged in a job of its own: those that ship with the project,
or those of folders. `agents.runner` runs it with real agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from repro.bundle.write import Bundle
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import wording
from repro.records.job import Job
from repro.records.row import Planned
from repro.runs import fixtures
from repro.runs.loop import ROWS_A_PROCESS, Run
from repro.runs.rows import Row
from repro.studies import evaluation
from repro.studies.agent import controls
from repro.studies.agent.agent import Agent, Oracle
from repro.studies.agent.folder import Folder
from repro.studies.evaluation import Submission
from repro.system.jsonio import Json

NOTICE = (
    "--engine local: the agent runs as this user without a container, and can reach the network and all of your files"
)


def shipped(agent: str, repeats: int) -> list[Agent]:
    """Return the arm of a shipped agent: `oracle`, or `nop`, which is a control."""
    return [Oracle(times=repeats)] if agent == "oracle" else [controls.EVERY[agent]]


def row(run: Run, problem: Problem, arm: Agent, repeat: int) -> tuple[Row, Submission | None]:
    """Return the row of one solution, and the solution; None if there is none, whose reason is in the row."""
    name = f"{problem.key}/{arm.name}/{repeat}"
    described = Planned(row=name, problem=problem.key, arm=arm.name, control=arm.control,
                        torch_control=arm.torch_control, repeat=repeat)  # fmt: skip
    # The speed of a wrong answer does not matter, so nothing compiles for a negative control.
    judged = replace(run, options=run.options.but(modes=["eager"])) if arm.control else run
    found = []

    def build() -> Job:
        found.append(arm.solve(problem, repeat))
        return evaluation.job(judged, name, problem, found)

    planned = evaluation.row_for(described, build)
    submission = found[0] if found else None
    return replace(planned, withheld=submission.withheld if submission else ""), submission


def plan(run: Run, wanted: list[Problem], arms: Sequence[Agent]) -> tuple[list[Row], dict[str, bytes]]:
    """Return the rows, and the solutions by file name in the bundle.

    From problem to problem the order of the arms is reversed, so that time favours none; controls come last.
    """
    rows = []
    solutions: dict[str, bytes] = {}
    ours = [arm for arm in arms if not (arm.control or arm.torch_control)]
    others = [arm for arm in arms if arm.control or arm.torch_control]
    for at, problem in enumerate(wanted):
        for arm in [*(reversed(ours) if at % 2 else ours), *others]:
            for repeat in range(arm.repeats(problem)):
                planned, submission = row(run, problem, arm, repeat)
                rows.append(planned)
                # A text is kept once: rows of equal solutions share a file.
                if submission and not submission.missing and not submission.withheld:
                    if submission.source not in solutions.values():
                        solutions[f"solutions/{arm.name}/{repeat}/{problem.path.name}"] = submission.source
    return rows, solutions


def run(run: Run, only: list[str], arms: Sequence[Agent]) -> Bundle:
    """Run the study; return the bundle."""
    wanted = catalogue.suite("agent", size=run.size, only=only)
    folders = [arm for arm in arms if isinstance(arm, Folder)]
    for folder in folders:
        _say(run, folder, wanted)
    fixtures.ensure(run, wanted)
    rows, solutions = plan(run, wanted, arms)
    bundle = run.open("run", rows, _parameters(run, wanted, arms, folders))
    if folders:  # outside of the parameters, so that another file in a folder does not keep a run from going on
        bundle.manifest["unused_files"] = {folder.name: folder.unused for folder in folders if folder.unused}
    for name, content in solutions.items():
        bundle.file(name, content)
    # Safe for what ships with the project; other solutions get a process each.
    together = ROWS_A_PROCESS if run.options.trust == "audited" and not folders else 1
    run.execute(rows, bundle, evaluation.summary, together=together)
    return bundle


def _say(run: Run, folder: Folder, wanted: list[Problem]) -> None:
    """Name the files of a folder that are not used, and the problems that it has no file of."""
    if folder.unused:
        run.progress.say(wording.unused(folder.name, folder.unused))
    if lacking := [problem.id for problem in wanted if problem.id not in folder.samples]:
        run.progress.say(f"{folder.name}: no file, so an error each: {wording.listed(lacking, len(lacking))}")


def _parameters(run: Run, wanted: list[Problem], arms: Sequence[Agent], folders: list[Folder]) -> Json:
    """Return what two runs must share for one to continue the other."""
    source = {"solutions": [folder.name for folder in folders]} if folders else {"agent": arms[0].name}
    return source | run.parameters(
        arms={arm.name: arm.label for arm in arms},
        repeats=max(arm.repeats(problem) for arm in arms for problem in wanted),
        control_options=run.options.but(modes=["eager"]).on(run.engine.device).to_json(),
    )
