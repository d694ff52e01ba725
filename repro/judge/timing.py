"""Paired timing: blocks in which every variant runs on the same fresh inputs, in random order, with a cold L2.

The first form: events in the worker with the host's clock beside them, one fresh input set a block, a random part of
each block's last output checked against the reference.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from repro.errors import SolutionRejected
from repro.judge import stats

MIN_BLOCKS, MAX_BLOCKS = 8, 40
MIN_SAMPLES = 30
BLOCK_MS = 15.0
MAX_CALLS = 20
# A worker's word for a time is taken between a nanosecond and a day.
MIN_MS, MAX_MS = 1e-6, 86_400_000.0
# Half-width of the 95 % interval of the median, as a fraction of it, at which sampling stops.
PRECISION = 0.005
# Device and host clock may differ by launch latency only; above this many ms a ratio over HOST_RATIO is suspect.
HOST_FROM_MS, HOST_RATIO = 0.2, 1.25


@dataclass
class Series:
    """The samples of one variant: per block, per call, in ms."""

    device_ms: list[list[float]] = field(default_factory=list)
    host_ms: list[list[float]] = field(default_factory=list)

    @property
    def flat(self) -> list[float]:
        return [sample for block in self.device_ms for sample in block]

    @property
    def blocks(self) -> list[float]:
        return [statistics.median(block) for block in self.device_ms]


@dataclass(frozen=True)
class Runner:
    """One variant. `run(calls)` makes that many timed calls and returns device and host times, ms a call."""

    name: str
    run: Callable[[int], tuple[list[float], list[float]]]


def converged(series: Series) -> bool:
    """Whether the median is known to PRECISION from enough samples."""
    if len(series.device_ms) < MIN_BLOCKS or len(series.flat) < MIN_SAMPLES:
        return False
    summary = stats.summary(series.flat)
    low, high = summary["ci95"]
    return bool((high - low) / 2 <= PRECISION * summary["median"])


def measure(
    runners: list[Runner], fresh: Callable[[], None], budget_s: float, *, warm: bool
) -> tuple[dict[str, Series], str]:
    """Runs blocks until every variant has converged, or the budget or MAX_BLOCKS is reached.

    warm: a first block is run and thrown away; it also sets the number of calls.
    Returns the series and `converged` or `not_converged`. A runner that raises ends the measurement with its error.
    """
    series = {runner.name: Series() for runner in runners}
    calls = dict.fromkeys(series, 1)
    deadline = time.monotonic() + budget_s
    for block in range(0 if warm else 1, MAX_BLOCKS + 1):
        fresh()
        for runner in random.sample(runners, len(runners)):
            device, host = runner.run(calls[runner.name])
            calls[runner.name] = max(1, min(MAX_CALLS, math.ceil(BLOCK_MS / max(1e-4, statistics.median(device)))))
            if block:
                series[runner.name].device_ms.append(device)
                series[runner.name].host_ms.append(host)
        if block and all(converged(s) for s in series.values()):
            return series, "converged"
        if block and time.monotonic() > deadline:
            break
    return series, "not_converged"


def times(values: Any, count: int) -> list[float]:
    """What a worker reported, as `count` positive times in ms. Raises SolutionRejected where it is not that."""
    numbers = [v for v in values if isinstance(v, int | float)] if isinstance(values, list) else []
    if len(numbers) != count or not all(MIN_MS <= t < MAX_MS for t in numbers):
        raise SolutionRejected("impossible_time", f"{count} positive times were due")
    return [float(t) for t in numbers]


def suspect(series: Series) -> bool:
    """Whether the device clock shows much less than the host's clock saw pass."""
    device = statistics.median(series.flat)
    host = statistics.median(sample for block in series.host_ms for sample in block)
    return host > HOST_FROM_MS and host > HOST_RATIO * device + 0.1
