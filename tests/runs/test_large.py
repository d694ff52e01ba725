"""Large runs: a driver whose memory does not grow with its rows."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from conftest import WHOLE

from repro import config
from repro.bundle.write import Bundle
from repro.records.fingerprint import Fingerprint
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs.rows import Row, keep

# Half of them at each push: rows that were kept would still take more than twice the bound.
ROWS = 2000 if WHOLE else 1000


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_memory_of_the_driver_does_not_grow_with_its_rows(tmp_path):
    source = Bundle.open(max((config.ROOT / "artifacts" / "results" / "h200-pinned").glob("*-run")))
    results = [json.dumps(row["result"]) for row in source.rows.values() if row["status"] == "done"]
    fingerprint = Fingerprint.model_validate(next(iter(source.fingerprints().values())))
    plan = [f"row{number}" for number in range(ROWS)]
    bundle, memory = Bundle.create(tmp_path, "run", plan, {"arms": {}}), 0.0
    for number, name in enumerate(plan):
        job = Job(name, "evaluate", problem="L1_36", files={"solution_0.py": b"# %d" % (number % 250)})
        result = json.loads(results[number % len(results)])
        keep(
            bundle, Row(Planned(row=name, problem="L1_36"), job), Outcome(name, "done", result, fingerprint=fingerprint)
        )
        if number == ROWS // 10:
            memory = _memory_mb()
    assert _memory_mb() - memory < 20 and (bundle.path / "rows.jsonl").stat().st_size > 20_000 * ROWS
