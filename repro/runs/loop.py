"""Runs planned rows through an engine into a bundle, with resume and progress; Ctrl-C loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from repro import config
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import ReproError
from repro.records import row as record
from repro.records.options import Options
from repro.runs.progress import Progress
from repro.runs.rows import Row, ended
from repro.runs.schedule import Schedule
from repro.system.jsonio import Json

# Rows of shipped solutions that share a process: starting one with its judge takes 4 to 8 s.
ROWS_A_PROCESS = 32
# When several batches run at once: a batch takes at most this part of what is left for each slot, so that a slow one
# does not keep the others waiting at the end; but shorter ones are not worth a process. If lengths are known and at
# most _DEALT_S are left for each slot, all but the shortest problems are dealt out, a process for each slot.
_PART, _WORTH_S, _DEALT_S = 0.5, 20.0, 180.0
# About how long a job takes: for its inputs and each solution, and for compiled baselines. Level 3 takes twice as long.
_SOLUTION_S, _COMPILED_S = 10.0, 25.0
# Earlier bundles that say how long rows took.
_EARLIER = 3
_TEST_CLAIMS = ("run", "benchmark")
# Rows that share a process or container.
Batch = list[Row]


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

    def parameters(self, **more: Any) -> Json:
        """Return what the manifest says of a run, by which `resume` knows it again."""
        options = self.options.on(self.engine.device).to_json()
        return {**more, "size": self.size, "device": self.engine.device, "options": options}

    def open(self, verb: str, rows: list[Row], parameters: Json) -> Bundle:
        """Return a new bundle, or with `resume` the newest unfinished one of the same plan; say if there is none.

        Verbs that test claims store the claims in the bundle before its first row.
        """
        plan, say = [row.id for row in rows], self.progress.say
        unfinished = Bundle.resume(self.results, verb, plan, parameters) if self.resume else None
        if unfinished is not None:
            measured = sum(ended(unfinished, row) for row in rows)
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
        shares = all(row.job.shares for row in rows if row.job is not None)
        schedule = Schedule(self.engine, bundle, self.progress, summarise, done, jobs=self.jobs, shares=shares)
        verb, device = bundle.manifest["verb"], self.engine.device
        known = _recorded_s(self.results, verb, device) if schedule.at_once > 1 else {}
        batches = divided([row for row in rows if row.id not in done], together, schedule.at_once, known)
        schedule.run([partial(schedule.measure, batch) for batch in batches], schedule.at_once)
        return list(bundle.records().values())


def _recorded_s(results: Path, verb: str, device: str) -> dict[str, float]:
    """Return row id -> seconds in the latest bundles of a verb on a device."""
    known: dict[str, float] = {}
    for path in sorted(results.glob(f"*-{verb}*"))[-_EARLIER:]:
        with contextlib.suppress(ReproError, LookupError, TypeError, ValueError):  # damaged, or being written
            bundle = Bundle.open(path)
            if bundle.manifest["parameters"].get("device") == device:
                known |= {name: float(row["wall_s"]) for name, row in bundle.rows.items() if row["status"] == "done"}
    return known


def _expected_s(row: Row) -> float:
    """Return about how many seconds a row takes on a GPU."""
    if row.job is None:
        return 0.0
    count, level = len(row.job.solutions), 2.0 if row.plan.problem.startswith("L3") else 1.0
    return level * (_SOLUTION_S * (1 + count) + _COMPILED_S * (count and len(row.job.options.modes) > 1))


def divided(rows: list[Row], together: int, slots: int, known: Mapping[str, float]) -> list[Batch]:
    """Return rows in batches of at most `together`, or ROWS_A_PROCESS of one group.

    With several slots the longest come first. The rows of a problem, which share baselines, stay together, unless they
    take longer than a slot's equal share; short problems share a batch. known: row id -> seconds in earlier runs. If
    all are, the last minutes are one batch for each slot and then the shortest problems.
    """

    def seconds(some: Batch) -> float:
        return sum(known.get(row.id) or _expected_s(row) for row in some)

    def fit(some: Batch, most_s: float) -> bool:
        first, last = some[0].group, some[-1].group
        return first == last and len(some) <= (ROWS_A_PROCESS if last else together) and seconds(some) <= most_s

    left = seconds(rows)
    fair = left / slots
    least = min(_WORTH_S, fair) if slots > 1 else math.inf
    parts: list[Batch] = []
    for _, some in itertools.groupby(rows, lambda row: row.plan.problem):
        mine = list(some)
        parts += [mine] if fit(mine, fair) else [[row] for row in mine]
    due = deque(sorted(parts, key=seconds, reverse=True) if slots > 1 else parts)
    batches: list[Batch] = []
    while due:
        if known.keys() >= {row.id for row in rows} and left / slots <= _DEALT_S:
            longer, shortest = list(due)[:-slots], list(due)[-slots:]
            return [*batches, *_dealt(longer, slots, fit, seconds), *shortest]
        batch, most_s = due.popleft(), max(_PART * left / slots, least)
        while due and fit(batch + due[0], most_s):
            batch += due.popleft()
        left -= seconds(batch)
        batches.append(batch)
    return batches


def _dealt(
    parts: Iterable[Batch],
    slots: int,
    fit: Callable[[Batch, float], bool],
    seconds: Callable[[Batch], float],
) -> list[Batch]:
    """Return parts, the longest first, as one batch for each slot, all about as long; more if they do not fit."""
    batches: list[Batch] = [[] for _ in range(slots)]
    for part in parts:
        shortest = min(batches, key=seconds)
        if shortest and not fit(shortest + part, math.inf):
            batches.append(part)
        else:
            shortest += part
    return sorted(filter(None, batches), key=seconds, reverse=True)
