"""Fixtures on disk: seeds, checksums, sketches, error bounds and limits of a problem; never a stored tensor.

`judge/calibrate.py` measures them; this module keeps and finds them, and needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro import jsonio, problems
from repro.bundle.write import Bundle
from repro.cells import Cell
from repro.engines.base import Engine
from repro.errors import BundleError, PrerequisiteError
from repro.judge import FIXTURE_SCHEMA_VERSION
from repro.problems import Problem
from repro.progress import Progress
from repro.runs import Row, execute, open_bundle

# What judging reads.
NEEDED = ("problem_sha256", "weights_sha256", "dtype", "trials", "margin", "refused")


def path(folder: Path, problem: Problem, device: str) -> Path:
    """Return the path of a fixture below a results folder: `fixtures/<size>-<device>/<key>.json`."""
    return folder / "fixtures" / f"{problem.size}-{device}" / f"{problem.key}.json"


def load(file: Path, problem: Problem) -> dict[str, Any]:
    """Return a fixture that may judge. Raises PrerequisiteError if it is missing, stale or refused."""
    fixture = _read(file, problem)
    if fixture["refused"]:
        remedy = "Leave this problem out, or change its stress inputs in problems/suites.toml."
        raise PrerequisiteError(f"the fixture of {problem.key} is refused", fixture["refused"], remedy)
    return fixture


def _read(file: Path, problem: Problem) -> dict[str, Any]:
    """Return a fixture of this problem file, refused or not. Raises PrerequisiteError if it is missing or stale."""
    remedy = f"Run `repro fixtures --problem {problem.id}`, which measures it again."
    try:
        fixture: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise PrerequisiteError(f"no fixture for {problem.key}", f"{file} is missing", remedy) from None
    except (OSError, ValueError) as error:
        raise PrerequisiteError(f"fixture {file} cannot be read", str(error), remedy) from error
    if not isinstance(fixture, dict) or fixture.get("schema_version") != FIXTURE_SCHEMA_VERSION:
        raise PrerequisiteError(f"fixture {file} has another schema", "", remedy)
    missing = [name for name in NEEDED if name not in fixture]
    if missing:
        raise PrerequisiteError(f"fixture {file} is not whole", f"it lacks {', '.join(missing)}", remedy)
    if fixture["problem_sha256"] != hashlib.sha256(problem.path.read_bytes()).hexdigest():
        raise PrerequisiteError(f"fixture {file} is of another version of {problem.path.name}", "", remedy)
    return fixture


def matches(file: Path, problem: Problem) -> bool:
    """Return whether a fixture on disk may judge this problem file."""
    try:
        load(file, problem)
    except PrerequisiteError:
        return False
    return True


def known(file: Path, problem: Problem) -> bool:
    """Return whether a fixture on disk is of this problem file; a refused one counts too."""
    try:
        _read(file, problem)
    except PrerequisiteError:
        return False
    return True


def ensure(
    wanted: Iterable[Problem], results: Path, engine: Engine, progress: Progress, *, resume: bool = False
) -> None:
    """Measures the missing and stale fixtures of shipped problems below `results`, in one trusted job for each size.

    A fixture that cannot be measured stays missing: `load` then says so for its problem alone.
    """
    lacking = {(p.size, p.key): p for p in wanted if not known(path(results, p, engine.device), p)}
    for size in sorted({size for size, _ in lacking}):
        measured = [p for (of, _), p in sorted(lacking.items()) if of == size]
        folder = path(results, measured[0], engine.device).parent
        progress.say(f"measuring the fixtures that are missing in {folder}: {', '.join(p.key for p in measured)}")
        measure(measured, size, results, engine, progress, resume=resume)


def chosen(only: list[str], size: str) -> list[Problem]:
    """Return the problems of all suites, or those of `only` (ids; `L1_36@bf16` names one dtype, `L1_36` all)."""
    everything = [p for suite in problems.suites() for p in problems.suite(suite, size=size)]
    if not only:
        return everything
    for spec in only:
        problems.load(spec, size=size)
    return [p for p in everything if p.id in only or p.key in only]


def run(
    only: list[str], size: str, results: Path, engine: Engine, progress: Progress, *, resume: bool
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Run `repro fixtures`: measure the fixtures of all suites, or of the problems in `only`."""
    return measure(chosen(only, size), size, results, engine, progress, resume=resume)


def measure(
    wanted: list[Problem], size: str, results: Path, engine: Engine, progress: Progress, *, resume: bool
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Measure the fixtures of shipped problems in one process (trusted work) and write them below `results`."""
    rows = [
        Row(p.key, Cell(p.key, "fixture", p.id, size=size, dtype=p.dtype, device=engine.device), {"problem": p.key})
        for p in wanted
    ]
    parameters = {"size": size, "device": engine.device}
    bundle = open_bundle(results, "fixtures", rows, parameters, progress, resume=resume)
    measured = execute(rows, engine, bundle, progress, summary, together=max(1, len(rows)))
    by_key = {row["row"]: row for row in measured}
    for problem in wanted:
        row = by_key.get(problem.key)
        if row is not None and row["status"] == "done":
            file = path(results, problem, engine.device)
            try:
                jsonio.write(file, row["result"])
            except OSError as error:
                bundle.finish("failed", error=f"cannot write {file}")
                kept = f"The measured fixtures are in {bundle.path}; repeat with --resume."
                raise BundleError(f"cannot write {file}", error.strerror or str(error), kept) from error
    bundle.finish("complete" if all(r["status"] == "done" for r in measured) else "incomplete")
    return bundle, measured


def summary(row: dict[str, Any]) -> str:
    """Return one line for a measured fixture."""
    fixture = row["result"]
    if fixture["refused"]:
        return f"refused: {fixture['refused']}"
    return f"margin {fixture['margin']:.1f} over the cheat {fixture['best_cheat']!r}, {fixture['build_s']:.1f} s"
