"""`repro fixtures`, and the fixtures that another verb lacks: measured through an engine, written below `results`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import BundleError
from repro.fixtures import store
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records.job import Job
from repro.runs.loop import execute, open_bundle
from repro.runs.progress import Progress
from repro.runs.rows import Row
from repro.system import jsonio


def ensure(
    wanted: Iterable[Problem], results: Path, engine: Engine, progress: Progress, *, resume: bool = False
) -> None:
    """Measures the missing and stale fixtures of shipped problems below `results`, in one trusted job for each size.

    A fixture that cannot be measured stays missing: `load` then says so for its problem alone.
    """
    lacking = {(p.size, p.key): p for p in wanted if not store.known(store.path(results, p, engine.device), p)}
    for size in sorted({size for size, _ in lacking}):
        measured = [p for (of, _), p in sorted(lacking.items()) if of == size]
        folder = store.path(results, measured[0], engine.device).parent
        progress.say(f"measuring the fixtures that are missing in {folder}: {', '.join(p.key for p in measured)}")
        measure(measured, size, results, engine, progress, resume=resume)


def chosen(only: list[str], size: str) -> list[Problem]:
    """Return the problems of all suites, or those of `only` (ids; `L1_36@bf16` names one dtype, `L1_36` all)."""
    everything = [p for suite in catalogue.suites() for p in catalogue.suite(suite, size=size)]
    if not only:
        return everything
    for spec in only:
        catalogue.load(spec, size=size)
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
        Row(p.key, Job(p.key, "fixture", p.id, size=size, dtype=p.dtype, device=engine.device), {"problem": p.key})
        for p in wanted
    ]
    parameters = {"size": size, "device": engine.device}
    bundle = open_bundle(results, "fixtures", rows, parameters, progress, resume=resume)
    measured = execute(rows, engine, bundle, progress, summary, together=max(1, len(rows)))
    by_key = {row["row"]: row for row in measured}
    for problem in wanted:
        row = by_key.get(problem.key)
        if row is not None and row["status"] == "done":
            file = store.path(results, problem, engine.device)
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
