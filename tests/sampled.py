"""What a job tells of a GPU that was observed, from lines as the sampler writes them."""

from __future__ import annotations

import json
import math
import time
from unittest import mock

from repro.doctor import graphics
from repro.fingerprint import gpu, series
from repro.fingerprint.query import Query
from repro.fingerprint.telemetry import Telemetry
from repro.system.jsonio import Json

BITS = {name: bit for bit, name in gpu.REASONS.items()}
COLUMNS = ["t_us", "sm_mhz", "memory_mhz", "power_mw", "temperature_c", "reasons"]
MARKS = ("before", "warm", "timed", "after")


def lines(begin_s: float, seconds: float, reasons: dict[str, tuple[float, float]], timed: tuple[float, float]) -> str:
    """The sampler's text: 20 samples a second; the clock sinks while work is timed, and far where it is slowed."""
    text = [json.dumps({"columns": COLUMNS, "missing": {}})]
    for n in range(round(seconds * 20)):
        t = n / 20 + 0.02
        busy = timed[0] <= t < timed[1]
        mask = sum(BITS[name] for name, (begin, end) in reasons.items() if begin <= t < end) or (4 if busy else 1)
        slow = any(BITS[name] & mask for name in graphics._SLOWED)
        clock = 1100 if slow else 1755 + round(30 * math.sin(t)) if busy else 1980
        text.append(f"{round((begin_s + t) * 1e6)},{clock},{3201},{(650 if busy else 120) * 1000},"
                    f"{round(35 + 20 * t / seconds)},{mask}")  # fmt: skip
    return "\n".join(text) + "\n"


def seen(
    reasons: dict[str, tuple[float, float]] | None = None,
    *,
    seconds: float = 10.0,
    timed: tuple[float, float] | None = (2.0, 8.0),
) -> Json:
    """{"dynamic", "telemetry"} of a job, as `Telemetry.end` tells them. reasons: name -> from and to when, in seconds
    of the job; timed: None where nothing was."""
    start = time.monotonic()
    at = dict(zip(MARKS, (0.0, *(timed or (0.0, 0.0)), seconds), strict=True))

    def snapshot(name: str) -> gpu.Snapshot:
        told = {"sm_mhz": 345 if name == "before" else 1755, "energy_mj": round(300_000 * at[name]),
                "violation_thermal_ns": 0, "clock_event_reasons": 4}  # fmt: skip
        return gpu.Snapshot(
            start + at[name], {name: Query(name, "D", abs, "nvml").value(value) for name, value in told.items()}
        )

    with (
        mock.patch.object(time, "monotonic", return_value=start),
        mock.patch.object(gpu, "snapshot", side_effect=[snapshot(n) for n in MARKS if timed or n in MARKS[::3]]),
        mock.patch("repro.fingerprint.host.LOAD", Query("load_1m", "D", lambda: 1.0, "test")),
    ):
        observed = Telemetry("cpu")
        if timed:
            observed.mark("warm")
            observed.mark("timed")
        observed.status, observed.period_ms = "ok", 50
        told = series.parse(lines(start, seconds, reasons or {}, timed or (0.0, 0.0)))
        with mock.patch.object(Telemetry, "_series", return_value=told):
            return observed.end()
