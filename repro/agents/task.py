"""An agent's task: agent.json, its folders, and the prompts, which are equal in every arm."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path
from string import Template
from typing import Any

from repro.errors import UsageError
from repro.problems import catalogue as problems

TASK = "agent.json"
PROMPTS = Path(__file__).parent / "prompts"
DEVICE_NOTE = """ There is no GPU here: Triton kernels run in its interpreter, sizes are
small, and times are not a measurement. Only correctness can be checked."""


@dataclass(frozen=True)
class Options:
    """Settings of an agent, equal in every arm of a study.

    context_tokens: input tokens beyond which old tool results are dropped. output_tokens: of one reply. bash_s, tool_s:
    limits of one command and of one knowledge call, seconds. thinking, effort: passed on if given.
    """

    context_tokens: int = 150_000
    output_tokens: int = 32_000
    bash_s: float = 600.0
    tool_s: float = 340.0
    thinking: dict[str, Any] | None = None
    effort: str = ""


@dataclass(frozen=True)
class Task:
    """The contents of agent.json.

    optimize: whether `repro optimize` may be used. relay_port: 0 for any free one. script: a recording in the folder,
    for the agent `replay`. socket: the gateway's. isolation: `container`, or `processes` if the agent can reach the
    machine's network. brief: a file in the folder whose text follows the prompt; studies have none.
    """

    folder: Path
    job: str
    agent: str
    arm: str
    model: str
    problems: tuple[str, ...]
    size: str = "full"
    device: str = "cuda"
    mode: str = "problem"
    optimize: bool = False
    budgets: dict[str, float | None] = field(default_factory=dict)
    knowledge: str = "none"
    relay_port: int = 8080
    expect_tools: tuple[str, ...] = ()
    socket: str = "/gateway-sock/gw.sock"
    isolation: str = "container"
    script: str = "replay.jsonl"
    brief: str = ""
    options: Options = field(default_factory=Options)

    @property
    def work(self) -> Path:
        """Return the agent's working folder."""
        return self.folder / "work"

    @property
    def solutions(self) -> Path:
        """Return the folder from which solutions are collected."""
        return self.work / "solutions"

    @property
    def scratch(self) -> Path:
        """Return the folder of caches, temporary files and $HOME of the agent's programs."""
        return self.folder / "scratch"

    def missing(self) -> list[str]:
        """Return the file names of missing solutions."""
        names = [problems.load(each).path.name for each in self.problems]
        return [name for name in names if not (self.solutions / name).is_file()]


def read(folder: Path) -> Task:
    """Return the task of a folder. Raises UsageError."""
    file = folder / TASK
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}", str(error), "It is written by `repro run`.") from error
    try:
        known = {each.name for each in fields(Task)} - {"folder", "options"}
        chosen: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in data.items() if name in known
        }
        task = Task(folder.resolve(), options=Options(**data.get("options", {})), **chosen)
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{file} is not a task", str(error)) from error
    for each in task.problems:
        problems.load(each)
    return task


def _text(template_file: str, **values: object) -> str:
    template = Template((PROMPTS / template_file).read_text())
    return template.substitute({key: str(value) for key, value in values.items()})


def evaluate_command(task: Task) -> str:
    """Return the command that judges a solution from the agent's shell."""
    words = ["repro", "evaluate", "FILE", "--problem", "ID", "--trust", "dev", "--engine", "local"]
    return shlex.join([*words, "--device", task.device, "--size", task.size])


def optimize_command(task: Task) -> str:
    """Return the command that searches a faster kernel from the agent's shell, within one call of it."""
    minutes = max(1, int(task.options.bash_s / 60) - 2)
    words = ["repro", "optimize", "ID", "--from", "FILE", "--trust", "dev", "--engine", "local"]
    return shlex.join([*words, "--device", task.device, "--size", task.size, "--minutes", str(minutes)])


def limits(budgets: dict[str, float | None]) -> str:
    """Return the budgets as a phrase, without that of knowledge calls, so that all arms read alike."""
    said = []
    if (wall_s := budgets.get("wall_s")) is not None:
        said.append(f"{wall_s / 60:.0f} minutes" if wall_s >= 120 else f"{wall_s:.0f} seconds")
    if (turns := budgets.get("turns")) is not None:
        said.append(f"{turns:.0f} turns")
    if (tokens := budgets.get("tokens")) is not None:
        said.append(f"{tokens:,.0f} tokens")
    if (usd := budgets.get("usd")) is not None:
        said.append(f"{usd:.2f} USD of model use")
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "no fixed limit"


def prompt(task: Task) -> str:
    """Return the first message: the same text in every arm."""
    entries = []
    for each in task.problems:
        problem = problems.load(each)
        solution = task.solutions / problem.path.name
        file = task.folder / "problems" / problem.path.name
        name = problem.name.replace("_", " ")
        entries.append(_text("problem.md", id=each, name=name, file=file, solution=solution).strip())
    more = f"\n{(task.folder / task.brief).read_text()}" if task.brief else ""
    return _whole(task, entries) + more


def _whole(task: Task, entries: list[str]) -> str:
    return _text(
        "task.md",
        count="the problem" if len(entries) == 1 else f"each of the {len(entries)} problems",
        problems="\n".join(entries),
        solutions=task.solutions,
        evaluate=evaluate_command(task),
        problem_files=task.folder / "problems",
        docs=task.folder / "docs",
        device_note="" if task.device == "cuda" else DEVICE_NOTE,
        optimize=_text("optimize.md", optimize=optimize_command(task)) if task.optimize else "",
        limits=limits(task.budgets),
    )


def system(task: Task) -> str:
    """Return the system prompt: the same text in every arm."""
    return _text("system.md", work=task.work, call_s=f"{task.options.bash_s:.0f}")
