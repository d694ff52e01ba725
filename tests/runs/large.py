"""A model of large runs: `python tests/runs/large.py` prints the table of docs/records/results.md.

Jobs last as long as rows of the published bundles did. A job is lost at a given rate, and its loss is noticed late. A
finished job waits for the driver, which writes one row after another. What the driver needs for a row is measured here,
with rows of a published bundle.
"""

from __future__ import annotations

import heapq
import json
import random
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.bundle.write import Bundle  # noqa: E402
from repro.engines.base import LOST_RETRIES  # noqa: E402
from repro.records.fingerprint import Fingerprint  # noqa: E402
from repro.records.job import Job, Outcome  # noqa: E402
from repro.records.row import Planned  # noqa: E402
from repro.runs.rows import Row, keep  # noqa: E402

GPUS = (8, 64, 512)
# 250 problems, two arms, five repeats.
JOBS = 2500
# A lost job is noticed after this long (docs/records/results.md), and a dead node comes back after this long, s.
NOTICED_S, BACK_S = 18.8, 120.0


@dataclass(frozen=True)
class Costs:
    """What a job costs beside its own time, s. row_s: the driver, one after another. start_s: Ray and the node."""

    row_s: float
    start_s: float
    loss_rate: float


@dataclass(frozen=True)
class Ran:
    """A simulated run: its time, s, the least that it could have taken, how busy the driver was, and what was lost."""

    makespan_s: float
    ideal_s: float
    driver_share: float
    lost: int
    failed: int
    rows: int


def published() -> list[float]:
    """How long the rows of published bundles took, s."""
    found = []
    for verb in ("run", "benchmark"):
        for file in sorted((ROOT / "artifacts" / "results").glob(f"h*/*-{verb}/manifest.json")):
            found += [row.wall_s for row in Bundle.open(file.parent).records().values() if row.status == "done"]
    return found


def simulate(gpus: int, durations: list[float], costs: Costs, seed: int = 0) -> Ran:
    """Run jobs in order on N GPUs, event by event."""
    draw = random.Random(seed)
    todo = [(duration, 0) for duration in reversed(durations)]
    # what happens next: when, and whether a job has ended there, whose row the driver writes
    events = [(0.0, gpu, False) for gpu in range(gpus)]
    driver = end = busy = 0.0
    lost = failed = rows = 0
    while events:
        now, gpu, ended = heapq.heappop(events)
        if ended:
            now = driver = max(driver, now) + costs.row_s
            busy, rows, end = busy + costs.row_s, rows + 1, now
        if not todo:
            continue
        duration, losses = todo.pop()
        begin = now + costs.start_s
        if draw.random() >= costs.loss_rate:
            heapq.heappush(events, (begin + duration, gpu, True))
            continue
        lost += 1
        if losses < LOST_RETRIES:
            todo.append((duration, losses + 1))
        else:
            failed += 1
        heapq.heappush(events, (begin + draw.random() * duration + NOTICED_S + BACK_S, gpu, False))
    return Ran(end, max(sum(durations) / gpus, max(durations)), busy / end, lost, failed, rows)


def measured(rows: int, folder: Path) -> dict[str, float]:
    """Write rows as a driver does; return seconds and bytes a row, and how its memory grew, MB."""
    source = Bundle.open(max((ROOT / "artifacts" / "results" / "h200-pinned").glob("*-run")))
    results = [json.dumps(row["result"]) for row in source.rows.values() if row["status"] == "done"]
    fingerprint = Fingerprint.model_validate(next(iter(source.fingerprints().values())))
    plan = [f"row{number}" for number in range(rows)]
    bundle = Bundle.create(folder, "run", plan, {"arms": {}})
    begin, memory, used = time.perf_counter(), 0.0, time.process_time()
    for number, name in enumerate(plan):
        job = Job(name, "evaluate", problem="L1_36", files={"solution_0.py": b"# %d" % (number % 250)})
        result: dict[str, Any] = json.loads(results[number % len(results)])
        row = Row(Planned(row=name, problem="L1_36"), job)
        keep(bundle, row, Outcome(name, "done", result, fingerprint=fingerprint))
        if number == rows // 10:
            memory = _memory_mb()
    row_s = (time.perf_counter() - begin) / rows
    grown = _memory_mb() - memory
    cpu_s = (time.process_time() - used) / rows
    size = (bundle.path / "rows.jsonl").stat().st_size / rows
    begin = time.perf_counter()
    bundle.finish("complete")
    return {"row_s": row_s, "cpu_s": cpu_s, "bytes": size, "grown_mb": grown, "close_s": time.perf_counter() - begin}


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Print what is measured and the table. Arguments: how many rows to write; with 0, 12 ms a row is assumed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    row_s = 0.012
    if count:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(count, Path(folder))
        row_s = found["row_s"]
        print(f"{count} rows: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    known = published()
    draw = random.Random(1)
    durations = [draw.choice(known) for _ in range(JOBS)]
    print(f"{JOBS} jobs of {sum(durations) / JOBS:.1f} s on average, {max(durations):.0f} s at most")
    for rate in (0.0, 0.01, 0.05):
        for gpus in GPUS:
            ran = simulate(gpus, durations, Costs(row_s, 0.3, rate))
            print(f"{gpus:4} GPUs, {rate:4.0%} lost: {ran.makespan_s / 60:6.1f} min, ideal {ran.ideal_s / 60:6.1f}, "
                  f"{ran.ideal_s / ran.makespan_s:4.0%}; driver busy {ran.driver_share:4.0%}, lost {ran.lost}, "
                  f"failed {ran.failed}")  # fmt: skip


if __name__ == "__main__":
    main()
