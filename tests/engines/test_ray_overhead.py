"""What Ray adds to a job, and what a thousand jobs cost the driver."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import cluster

from repro.engines.local import LocalEngine
from repro.records import row as record
from repro.records.job import Job, Outcome
from repro.runs.loop import execute, open_bundle
from repro.runs.progress import Progress
from repro.runs.rows import Row

pytestmark = [
    pytest.mark.clock,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed; make test-slow installs it"
    ),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]

JOBS, MOST_S, MOST_EACH_S, MOST_GROWN_MB = 1000, 60.0, 0.3, 20.0


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An engine on two nodes of one slot each, whose jobs reach the node's process and return at once."""
    with pytest.MonkeyPatch.context() as patch, cluster(2, tmp_path_factory.mktemp("nodes")) as nodes:
        patch.setenv("RAY_INNER", "local")
        import ray

        from repro.engines.ray import RayEngine

        class Empty(RayEngine):
            def attempt(self, jobs: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Any:
                for job in jobs:
                    node = self._value(self._request(), progress)
                    yield Outcome(job.id, "done", {"telemetry": {"of": job.id}}, node=node.id)
                return ""

        yield Empty(gpus="none", device="cpu", address=nodes.address)
        ray.shutdown()


def test_a_job_takes_at_most_0_3_s_longer_than_on_the_local_engine(engine: Any) -> None:
    local = LocalEngine(gpus="none", device="cpu")
    spent: dict[str, list[float]] = {"local": [], "ray": []}
    for number in range(25):
        for name, each in (("local", local), ("ray", engine)):
            begin = time.perf_counter()
            assert each.look("print(1)") == "1\n"
            if number >= 5:  # the first ones start Ray's workers and the nodes' processes
                spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    print(f"\na job on the local engine {medians['local']:.3f} s, through Ray {medians['ray']:.3f} s")
    assert medians["ray"] - medians["local"] <= MOST_EACH_S, medians


def test_a_thousand_empty_jobs_take_a_minute_at_most_and_no_memory(engine: Any, tmp_path: Path) -> None:
    rows = [
        Row(record.Planned(row=f"row{n}"), Job(f"row{n}", "fingerprint", files={"f": b"%d" % n})) for n in range(JOBS)
    ]
    bundle = open_bundle(tmp_path, "evaluate", rows, {}, Progress(quiet=True), resume=False)
    memory: list[float] = []

    def summarise(row: record.Row) -> str:
        memory.append(memory_mb())
        return ""

    begin = time.perf_counter()
    found = execute(rows, engine, bundle, Progress(quiet=True), summarise)
    spent = time.perf_counter() - begin
    grown = memory[-1] - memory[JOBS // 10]
    print(f"\n{JOBS} empty jobs in {spent:.1f} s; the driver's memory grew by {grown:.1f} MB from {memory[0]:.0f} MB")
    assert len(found) == JOBS and {row.status for row in found} == {"done"}
    assert spent <= MOST_S and grown <= MOST_GROWN_MB
