"""A stopwatch with named laps, and the age of a process, in seconds."""

from __future__ import annotations

import os
import time

from repro.system.procfs import stat


def utc() -> str:
    """Return the time now, to the second: 2026-01-31T23:59:59Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Clock:
    """Seconds by name, since it was made."""

    def __init__(self) -> None:
        self.begin = self.last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str = "") -> None:
        """Add the time since the last lap to `name`, or drop it without a name."""
        now = time.monotonic()
        if name:
            self.laps[name] = round(self.laps.get(name, 0.0) + now - self.last, 3)
        self.last = now

    def total(self) -> float:
        """Return the seconds since it was made."""
        return round(time.monotonic() - self.begin, 3)


def age_s(pid: int) -> float:
    """Return how long a process has lived, seconds; 0 if unknown."""
    try:
        begun = int(stat(f"/proc/{pid}/stat")[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return round(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun), 3)
