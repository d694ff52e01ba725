"""The model of large runs: near the ideal up to 64 GPUs, and a driver whose memory does not grow with its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from large import JOBS, Costs, measured, simulate

DURATIONS = [5.0 + (number * 37 % 90) for number in range(JOBS)]


@pytest.mark.parametrize(("gpus", "share"), [(8, 0.97), (64, 0.92), (512, 0.6)])
def test_a_run_takes_little_more_than_the_ideal(gpus: int, share: float) -> None:
    ran = simulate(gpus, DURATIONS, Costs(0.012, 0.3, 0.0))
    assert ran.rows == JOBS and ran.failed == 0 and share <= ran.ideal_s / ran.makespan_s <= 1


def test_losses_cost_time_and_no_row() -> None:
    calm, rough = (simulate(64, DURATIONS, Costs(0.012, 0.3, rate)) for rate in (0.0, 0.05))
    assert rough.lost > 50 and rough.rows + rough.failed == JOBS and rough.failed <= 1
    assert calm.makespan_s < rough.makespan_s < 1.6 * calm.makespan_s


def test_a_slow_driver_is_what_breaks_first() -> None:
    ran = simulate(512, DURATIONS, Costs(0.2, 0.3, 0.0))
    assert ran.driver_share > 0.95 and ran.makespan_s > JOBS * 0.2


@pytest.mark.slow
def test_memory_of_the_driver_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    found = measured(2000, tmp_path)
    assert found["bytes"] > 20_000 and found["grown_mb"] < 20, found
