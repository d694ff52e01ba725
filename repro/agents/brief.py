"""What an agent gets: its prompts, which are equal in every arm, and the files of its folder."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from repro import config
from repro.fixtures import store
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records.fixture import Fixture
from repro.studies.agent.design import Design, Unit
from repro.system import jsonio

PROMPTS = Path(__file__).parent / "prompts"
DEVICE_NOTE = """ There is no GPU here: Triton kernels run in its interpreter, sizes are
small, and times are not a measurement. Only correctness can be checked."""
#: Longest command of an agent, seconds.
BASH_S = 600
DOC = config.ROOT / "docs" / "judging.md"
#: Fields of a fixture that judging reads. Checksums, seeds, cheats and times are withheld.
FIXTURE_KEYS: dict[str, Any] = dict.fromkeys(
    (*Fixture.model_fields, "schema_version", "problem", "size", "generator", "device", "best_cheat"), True
) | {"trials": {"__all__": {"stress", "limits"}}}
#: The command `repro` where agents have no search.
NO_OPTIMIZE = """if [ "$1" = optimize ]; then echo 'repro: optimize is off in this study' >&2; exit 1; fi
"""
CONTAINED = ("/opt/venv/bin/python", "/opt/repro/entrypoint.py")


def loaded(unit: Unit, size: str) -> list[Problem]:
    """Return the problems of a unit."""
    return [catalogue.load(name, size=size) for name in unit.problems]


def files(unit: Unit, size: str, device: str, results: Path) -> dict[str, bytes]:
    """Return the files in an agent's folder before it starts. Raises PrerequisiteError if a fixture is missing."""
    found = {}
    for problem in loaded(unit, size):
        found[f"problems/{problem.path.name}"] = problem.source
        whole = store.load(store.path(results, problem, device), problem)
        slim = whole.model_dump(include=FIXTURE_KEYS, exclude_unset=True)
        found[f"results/{store.path(Path(), problem, device)}"] = jsonio.render(slim)
    if DOC.exists():
        found[f"docs/{DOC.name}"] = DOC.read_bytes()
    return found


def command(design: Design, contained: bool) -> str:
    """Return the script `repro` of an agent's shell."""
    words = shlex.join(CONTAINED if contained else config.COMMAND)
    return f'#!/bin/sh\n{"" if design.optimize else NO_OPTIMIZE}exec {words} "$@"\n'


def system(root: str) -> str:
    """Return the system prompt. root: the folder of the sandbox."""
    return _text("system.md", work=f"{root}/files", call_s=BASH_S)


def prompt(design: Design, unit: Unit, size: str, device: str, root: str) -> str:
    """Return the first message."""
    solutions = f"{root}/files/solutions"
    entries = [
        _text("problem.md", id=problem.id, name=problem.name.replace("_", " "),
              file=f"{root}/problems/{problem.path.name}", solution=f"{solutions}/{problem.path.name}").strip()
        for problem in loaded(unit, size)
    ]  # fmt: skip
    where = ["--trust", "dev", "--engine", "local", "--device", device, "--size", size]
    search = ["repro", "optimize", "ID", "--from", "FILE", *where, "--minutes", str(BASH_S // 60 - 2)]
    return _text(
        "task.md",
        count="the problem" if len(entries) == 1 else f"each of the {len(entries)} problems",
        problems="\n".join(entries),
        solutions=solutions,
        evaluate=shlex.join(["repro", "evaluate", "FILE", "--problem", "ID", *where]),
        problem_files=f"{root}/problems",
        docs=f"{root}/docs",
        device_note="" if device == "cuda" else DEVICE_NOTE,
        optimize=_text("optimize.md", optimize=shlex.join(search)) if design.optimize else "",
        limits=_limits(asdict(design.budgets)),
    )


def _text(template_file: str, **values: object) -> str:
    template = Template((PROMPTS / template_file).read_text())
    return template.substitute({key: str(value) for key, value in values.items()})


def _limits(budgets: dict[str, float | None]) -> str:
    """Return the budgets as a phrase, without that of knowledge calls, so that all arms read alike."""
    forms = {"turns": "{:.0f} turns", "tokens": "{:,.0f} tokens", "usd": "{:.2f} USD of model use"}
    said = []
    if (wall_s := budgets.get("wall_s")) is not None:
        said.append(f"{wall_s / 60:.0f} minutes" if wall_s >= 120 else f"{wall_s:.0f} seconds")
    for name, form in forms.items():
        if (value := budgets.get(name)) is not None:
            said.append(form.format(value))
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "no fixed limit"
