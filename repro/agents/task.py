"""The agent study as a task of Inspect: problems x arms, an agent in a sandbox, and our judge as the scorer.

`repro run` makes it from its command line; `inspect eval repro/agents` runs it by itself.
"""

from __future__ import annotations

from pathlib import Path

import anyio
from anyio.to_thread import run_sync
from inspect_ai import Task, task
from inspect_ai.agent import Agent, BridgedToolsSpec, as_solver, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, bash, text_editor
from inspect_ai.util import LimitScope, apply_limits, sandbox

from repro import config
from repro.agents import brief, knowledge, replay
from repro.agents import sandbox as rooms
from repro.agents.replay import Script
from repro.agents.sandbox import Contained, Plain
from repro.agents.sitting import Sitting, cause, limits
from repro.agents.study import Study
from repro.engines import choose
from repro.engines.submission import Basket
from repro.problems import catalogue
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies.agent import options
from repro.studies.agent.design import Design, Unit, units

PROGRAM = "claude"
#: Tools of the CLI that lead out of the sandbox, wait for a person, or start further agents.
DENIED = ["WebSearch", "WebFetch", "Task", "Agent", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "NotebookEdit",
          "Skill", "SlashCommand", "CronCreate", "CronDelete", "CronList", "ScheduleWakeup", "EnterWorktree",
          "ExitWorktree", "RemoteTrigger", "SendMessage", "PushNotification", "Workflow"]  # fmt: skip
Room = Contained | Plain


def claude_code(tools: list[Tool], work: str) -> Agent:
    """Return the Claude Code CLI that the sandbox has, with the knowledge tools over MCP."""
    from inspect_swe import claude_code as cli

    return cli(
        version="sandbox", cwd=work, disallowed_tools=DENIED, retry_refusals=None, retry_uncaught_errors=None,
        bridged_tools=[BridgedToolsSpec(name=knowledge.SERVER, tools=tools)] if tools else [],
        env={
            "BASH_DEFAULT_TIMEOUT_MS": str(brief.BASH_S * 1000), "BASH_MAX_TIMEOUT_MS": str(brief.BASH_S * 1000),
            "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false",
            "MCP_TOOL_TIMEOUT": str(int(knowledge.CALL_S * 1000)),
        },
    )  # fmt: skip


def own_loop(tools: list[Tool], work: str) -> Agent:
    """Return Inspect's agent with a shell, an editor and the knowledge tools."""
    return react(
        prompt=None, submit=False, tools=[bash(timeout=brief.BASH_S), text_editor(), *tools], truncation="auto"
    )


AGENTS = {"sdk": own_loop, "claude-code": claude_code}


async def equip(study: Study, unit: Unit, room: Room) -> None:
    """Put an agent's files into its sandbox."""
    design = study.design
    place = brief.files(unit, study.size, study.engine.device, study.results)
    place["bin/repro"] = brief.command(design, study.engine.contained).encode()
    # A login shell sets a PATH of its own.
    place["home/.profile"] = (
        f'PATH="{room.root}/bin:$PATH"; test ! -d /opt/venv || PATH="$PATH:/opt/venv/bin"\n'.encode()
    )
    for name, content in place.items():
        await room.write_file(f"{room.root}/{name}", content)
    await room.exec(["/bin/sh", "-c", "mkdir -p solutions && chmod 755 ../bin/repro"])


@solver
def sit(study: Study) -> Solver:
    """Let the agent of a sample work until it ends or reaches a limit; keep the record of the attempt."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        unit = study.units[str(state.sample_id)]
        room = sandbox().as_type(Contained) if study.engine.contained else sandbox().as_type(Plain)
        async with study.turn(unit) as sitting:
            error, scope, basket = None, None, Basket()
            try:
                await equip(study, unit, room)
                sitting.isolation = room.isolation()
                state, scope = await _work(study, sitting, room, state, generate)
            except Exception as raised:
                error = cause(raised)
            finally:
                with anyio.CancelScope(shield=True):
                    basket = await room.finish()
                    await room.close()  # the judge gets the GPU
            await study.keep(sitting, error, scope, basket)
        return state

    return solve


async def _work(
    study: Study, sitting: Sitting, room: Room, state: TaskState, generate: Generate
) -> tuple[TaskState, LimitScope]:
    """Run the agent within its limits. Raises what ended it but a limit."""
    design, unit, work = study.design, sitting.unit, f"{room.root}/files"
    state.messages = [
        ChatMessageSystem(content=brief.system(room.root)),
        ChatMessageUser(content=brief.prompt(design, unit, study.size, study.engine.device, room.root)),
    ]
    if design.scripted:
        script = Script.read(design.scripts[unit.id])
        script.root = room.root
        replay.current.set(script)
    if design.agent == "claude-code":
        said = await room.exec([PROGRAM, "--version"])
        sitting.agent_version = said.stdout.split()[0] if said.success and said.stdout.strip() else ""
    with apply_limits(limits(design.budgets), catch_errors=True) as scope:
        try:
            async with (
                knowledge.offered(design.knowledge(unit.arm), sitting.log) as tools,
                anyio.create_task_group() as group,
            ):
                group.start_soon(sitting.watch, study.stopping)
                state = await as_solver(AGENTS[design.agent](tools, work))(state, generate)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as group_error:
            raise cause(group_error) from None
    return state, scope


@scorer(metrics=[mean(), stderr()])
def judged(study: Study) -> Scorer:
    """Judge what the agent left, each problem in a fresh container; the score is the share that is correct."""

    async def score(state: TaskState, target: Target) -> Score:
        verdicts = await run_sync(study.judge, study.units[str(state.sample_id)])
        right = sum(verdict.startswith("correct") for verdict in verdicts.values())
        shown = "; ".join(f"{problem}: {verdict}" for problem, verdict in verdicts.items())
        return Score(value=right / max(1, len(verdicts)), explanation=shown, metadata=dict(verdicts))

    return score


def of(study: Study, order: list[Unit]) -> Task:
    """Return the task of some units of a study, in their order."""
    samples = [
        Sample(
            id=unit.id, metadata={"arm": unit.arm, "problems": list(unit.problems), "repeat": unit.repeat},
            input=brief.prompt(study.design, unit, study.size, study.engine.device, Contained.root),
        )
        for unit in order
    ]  # fmt: skip
    return Task(
        dataset=MemoryDataset(samples, name="kernels"), solver=sit(study), scorer=judged(study), sandbox="repro",
        name="kernels", fail_on_error=False,
    )  # fmt: skip


@task
def kernels(
    agent: str = "sdk", arms: str = "baseline,with_kb", problems: str = "", kb: str = "local", repeats: int = 1,
    engine: str = "auto", device: str = "auto", results: str = "results", script: str = "",
) -> Task:  # fmt: skip
    """Return the study as a task of its own: `inspect eval repro/kernels --model PROVIDER/NAME -T problems=L1_36`.

    script: a file or folder of scripts, which answers in place of a model. Missing fixtures are measured below
    `results`. In a checkout paths count from its top folder. Judged kernels are in Inspect's log, not in a bundle.
    """
    chosen = choose(engine, gpus="all", device=device, say=print)
    size = chosen.size()
    model = get_model("replay/scripted") if script else get_model()
    plan = Design(agent=agent, model=str(model), arms=tuple(arms.split(",")), kb=kb, repeats=repeats,
                  upstream="replay" if script else "anthropic")  # fmt: skip
    wanted = catalogue.suite("agent", size=size, only=list(filter(None, problems.split(","))))
    order = units(plan, [problem.id for problem in wanted])
    if script:
        plan.scripts.update(options.scripts(_placed(script), order))
    rooms.use(chosen, 1.0)
    run = Run(chosen, _placed(results), Progress(), size=size)
    fixtures.ensure(run, wanted)
    found = of(Study(plan, run, units={unit.id: unit for unit in order}), order)
    found.model = model
    return found


def _placed(path: str) -> Path:
    """Return a path that a user gave. Inspect has moved to this file's folder where it was given the checkout's."""
    return Path(path) if config.ROOT == config.INSTALLED else config.ROOT / path
