"""What Ray adds to a job."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ray_cluster import cluster

from repro.engines.local import LocalEngine
from repro.records.job import Job

pytestmark = [
    pytest.mark.clock,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed; make test-slow installs it"
    ),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]

JOBS, MOST_S = 6, 3.0


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An engine on two nodes of one slot each."""
    monkeypatch.setenv("RAY_INNER", "local")
    with cluster(2, tmp_path_factory.mktemp("nodes")) as nodes:
        import ray

        from repro.engines.ray import RayEngine

        yield RayEngine(gpus="none", device="cpu", address=nodes.address)
        ray.shutdown()


def test_a_job_takes_at_most_3_s_longer_than_on_the_local_engine(engine):
    """A worker with an import of repro starts for each batch of jobs."""
    local = LocalEngine(gpus="none", device="cpu")
    spent: dict[str, list[float]] = {"local": [], "ray": []}
    for number in range(JOBS):
        for name, each in (("local", local), ("ray", engine)):
            begin = time.perf_counter()
            (outcome,) = each.submit([Job(f"job{number}", "fingerprint", device="cpu")], lambda _: None)
            assert outcome.status == "done", outcome.error
            spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    print(f"\na job on the local engine {medians['local']:.3f} s, through Ray {medians['ray']:.3f} s")
    assert medians["ray"] - medians["local"] <= MOST_S, medians
