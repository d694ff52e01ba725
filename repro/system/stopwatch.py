"""The time now, and a stopwatch with named laps."""

from __future__ import annotations

import time


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
