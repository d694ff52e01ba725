"""Runs planned rows through an engine into a bundle, with resume and progress; Ctrl-C loses nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from repro import config
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.records import row as record
from repro.runs.progress import Progress
from repro.runs.rows import Row
from repro.runs.schedule import Schedule

# Rows of shipped solutions that share a process: starting one with its judge takes 4 to 8 s.
ROWS_A_PROCESS = 32
# Batches for each slot when several run at once, so that a slow one does not keep the others waiting at the end.
_BATCHES_A_SLOT = 2
_TEST_CLAIMS = ("run", "benchmark")


def open_bundle(
    results: Path, verb: str, rows: list[Row], parameters: dict[str, Any], progress: Progress, *, resume: bool
) -> Bundle:
    """Return a new bundle, or with `resume` the newest unfinished one of the same plan; say if there is none.

    Verbs that test claims store the claims in the bundle before its first row.
    """
    plan = [row.id for row in rows]
    found = Bundle.resume(results, verb, plan, parameters) if resume else None
    if found is not None:
        progress.say(f"going on with {found.path.name}: {sum(map(found.done, plan))} of {len(plan)} rows are measured")
        return found
    if resume:
        progress.say(f"nothing to resume: {results} holds no unfinished bundle of this plan; starting a new one")
    bundle = Bundle.create(results, verb, plan, parameters)
    if verb in _TEST_CLAIMS:
        bundle.declare((config.ARTIFACTS_DIR / "claims.toml").read_bytes())
    return bundle


def execute(
    rows: list[Row],
    engine: Engine,
    bundle: Bundle,
    progress: Progress,
    summarise: Callable[[record.Row], str],
    *,
    together: int = 1,
    jobs: int | None = None,
) -> list[record.Row]:
    """Run every row that the bundle does not hold yet, and close it; return all rows in plan order.

    together: how many rows may share a process or container. summarise: returns one line for a finished row. jobs: as
    many batches run at once on the CPU, None for as many as fit; GPUs are all used. Raises Interrupted, EngineError (
    the engine is gone) or BundleError; the bundle then says so and keeps its rows.
    """
    done = {row.id for row in rows if bundle.done(row.id, row.content)}
    schedule = Schedule(engine, bundle, progress, summarise, done, jobs=jobs)
    batches = divided([row for row in rows if row.id not in done], together, schedule.at_once)
    schedule.run([partial(schedule.measure, batch) for batch in batches], schedule.at_once)
    found = bundle.records()
    return [found[row.id] for row in rows if row.id in found]


def divided(rows: list[Row], together: int, slots: int) -> list[list[Row]]:
    """Return rows in batches of at most `together`, or ROWS_A_PROCESS of rows that are grouped.

    Batches are smaller if several slots are to be filled. Neighbours stay together, so that the solutions of one
    problem run on one GPU.
    """
    fair = math.ceil(len(rows) / (slots * _BATCHES_A_SLOT)) if slots > 1 else len(rows)
    batches = []
    for grouped, some in itertools.groupby(rows, lambda row: row.grouped):
        left, size = list(some), max(1, min(ROWS_A_PROCESS if grouped else together, fair))
        batches += [left[at : at + size] for at in range(0, len(left), size)]
    return batches
