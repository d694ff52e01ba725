"""A process that samples clocks, power, temperature and event reasons of one GPU, many times a second.

`python -m repro.fingerprint.sampler UUID PERIOD_MS PARENT` writes lines to its standard output: a header, then one line
of integers for each sample, in the order of the header's columns. It imports no torch, makes no CUDA context, takes the
lowest priority and, if there are several, the last processor. It ends with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml

from repro.fingerprint import gpu
from repro.fingerprint.query import why

# Fewest processors for which this process keeps to one.
_SPARE_CPUS = 4
_MISSING = -1


def _columns(handle: Any) -> dict[str, Callable[[], int]]:
    """Return column -> query; power in mW, the rest in MHz, degrees Celsius and bits of `gpu.REASONS`."""
    n = pynvml
    return {
        "sm_mhz": lambda: int(n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM)),
        "memory_mhz": lambda: int(n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM)),
        "power_mw": lambda: int(n.nvmlDeviceGetPowerUsage(handle)),
        "temperature_c": lambda: int(n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU)),
        "reasons": lambda: gpu.event_reasons(handle),
    }


def _value(query: Callable[[], int]) -> int:
    try:
        return query()
    except pynvml.NVMLError:
        return _MISSING


def _humble() -> None:
    """Take the lowest priority, and the last processor if there are several."""
    os.nice(19)
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) >= _SPARE_CPUS:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed[-1:])


def _say(text: str) -> None:
    os.write(sys.stdout.fileno(), (text + "\n").encode())


def _run(uuid: str, period_s: float, parent: int) -> None:
    """Sample until the parent is gone or this process is killed."""
    _humble()
    handle, reason = gpu.device(uuid)
    if handle is None:
        _say(json.dumps({"columns": [], "missing": {"nvml": reason}}))
        return
    queries, missing = {}, {}
    for name, query in _columns(handle).items():
        try:
            query()
            queries[name] = query
        except pynvml.NVMLError as error:
            missing[name] = why(error)
    _say(json.dumps({"columns": ["t_us", *queries], "missing": missing}))
    due = time.monotonic()
    while os.getppid() == parent:
        _say(",".join(map(str, (int(time.monotonic() * 1e6), *map(_value, queries.values())))))
        due = max(due + period_s, time.monotonic())  # late samples are not caught up
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    _run(sys.argv[1], float(sys.argv[2]) / 1000, int(sys.argv[3]))
