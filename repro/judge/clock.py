"""Where time goes: laps of a stopwatch, seconds."""

from __future__ import annotations

import os
import time

from repro.judge.procfs import stat


class Clock:
    """Laps since it was made, seconds by name."""

    def __init__(self) -> None:
        self.begin = self.last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str = "") -> None:
        """Everything since the last lap belongs to `name`; without one to nothing."""
        now = time.monotonic()
        if name:
            self.laps[name] = round(self.laps.get(name, 0.0) + now - self.last, 3)
        self.last = now

    def total(self) -> float:
        """Everything so far."""
        return round(time.monotonic() - self.begin, 3)


def age_s(pid: int) -> float:
    """How long a process has lived, seconds; 0 where nothing tells."""
    try:
        begun = int(stat(f"/proc/{pid}/stat")[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return round(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun), 3)
