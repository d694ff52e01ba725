"""Runs planned rows through an engine into a bundle, with resume and progress; Ctrl-C loses nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from repro import config
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.records import row as record
from repro.records.options import Options
from repro.runs.progress import Progress
from repro.runs.rows import Row, ended
from repro.runs.schedule import Schedule

# Rows of shipped solutions that share a process: starting one with its judge takes 4 to 8 s.
ROWS_A_PROCESS = 32
# Batches for each slot when several run at once, so that a slow one does not keep the others waiting at the end.
_BATCHES_A_SLOT = 2
_TEST_CLAIMS = ("run", "benchmark")


@dataclass(frozen=True)
class Run:
    """What every verb that runs jobs is given: where they run, how solutions are judged, the folder of its bundle and
    fixtures, and what is shown meanwhile.

    size: of the problems. resume: whether to go on with the newest unfinished bundle of the same plan. jobs: as many
    batches run at once on the CPU, None for as many as fit; GPUs are all used.
    """

    engine: Engine
    results: Path
    progress: Progress
    options: Options = field(default_factory=Options)
    size: str = "full"
    resume: bool = False
    jobs: int | None = None

    def parameters(self, **more: Any) -> dict[str, Any]:
        """Return what the manifest says of a run, by which `resume` knows it again."""
        options = self.options.on(self.engine.device).to_json()
        return {**more, "size": self.size, "device": self.engine.device, "options": options}

    def open(self, verb: str, rows: list[Row], parameters: dict[str, Any]) -> Bundle:
        """Return a new bundle, or with `resume` the newest unfinished one of the same plan; say if there is none.

        Verbs that test claims store the claims in the bundle before its first row.
        """
        plan, say = [row.id for row in rows], self.progress.say
        unfinished = Bundle.resume(self.results, verb, plan, parameters) if self.resume else None
        if unfinished is not None:
            measured = sum(map(unfinished.done, plan))
            say(f"going on with {unfinished.path.name}: {measured} of {len(plan)} rows are measured")
            return unfinished
        if self.resume:
            say(f"nothing to resume: {self.results} holds no unfinished bundle of this plan; starting a new one")
        bundle = Bundle.create(self.results, verb, plan, parameters)
        if verb in _TEST_CLAIMS:
            bundle.declare((config.ARTIFACTS_DIR / "claims.toml").read_bytes())
        return bundle

    def execute(
        self, rows: list[Row], bundle: Bundle, summarise: Callable[[record.Row], str], *, together: int = 1
    ) -> list[record.Row]:
        """Run every row that the bundle does not hold yet, and close it; return all rows in plan order.

        together: how many rows may share a process or container. summarise: returns one line for a finished row.
        Raises Interrupted, EngineError (the engine is gone) or BundleError; the bundle then says so and keeps its rows.
        """
        done = {row.id for row in rows if ended(bundle, row)}
        schedule = Schedule(self.engine, bundle, self.progress, summarise, done, jobs=self.jobs)
        batches = divided([row for row in rows if row.id not in done], together, schedule.at_once)
        if schedule.at_once > 1:  # a long one at the end would keep the other GPUs waiting
            batches.sort(key=lambda batch: sum(map(_length, batch)), reverse=True)
        schedule.run([partial(schedule.measure, batch) for batch in batches], schedule.at_once)
        measured = bundle.records()
        return [measured[row.id] for row in rows if row.id in measured]


def _length(row: Row) -> float:
    """Return about how long a row takes, in rows of level 1. A negative control is not timed."""
    level = 2.0 if row.plan.problem.startswith("L3") else 1.0
    return level * len(row.plan.cases or [""]) * (0.3 if row.plan.control else 1.0)


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
