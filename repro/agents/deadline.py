"""When an agent must stop, and how its waits are ended. All threads of a session share one object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Stopped(Exception):
    """The session ends. Raised in the agent's thread where it waits, and never printed."""


class Deadline:
    """The wall budget and every other reason to stop.

    wall_s: seconds from now, or None for no limit. `reason` is empty until the agent must stop; then it is `wall` or
    the name of a signal.
    """

    def __init__(self, wall_s: float | None) -> None:
        self.begin = time.monotonic()
        self.wall_s = wall_s
        self.reason = ""
        self._event = threading.Event()
        self._closers: list[Callable[[], None]] = []

    def elapsed_s(self) -> float:
        """Return the seconds since the session began."""
        return time.monotonic() - self.begin

    def remaining_s(self, otherwise: float) -> float:
        """Return the seconds left, at most `otherwise`."""
        if self.wall_s is None:
            return otherwise
        return max(0.0, min(otherwise, self.wall_s - self.elapsed_s()))

    def passed(self) -> bool:
        """Return whether the wall budget is spent."""
        return self.wall_s is not None and self.elapsed_s() >= self.wall_s

    def stop(self, reason: str) -> None:
        """Ask the agent to stop; the first reason counts. Safe in a signal handler: it ends no wait by itself."""
        self.reason = self.reason or reason
        self._event.set()

    def stopping(self) -> bool:
        """Return whether the agent must stop; True as soon as the wall budget is spent."""
        if self.passed():
            self.stop("wall")
        return self._event.is_set()

    def check(self) -> None:
        """Raise Stopped if the agent must stop."""
        if self.stopping():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond a stop. Raises Stopped."""
        if self._event.wait(seconds):
            raise Stopped

    def on_stop(self, close: Callable[[], None]) -> None:
        """Register a function that ends a blocking wait of the agent's thread; another thread calls it."""
        self._closers.append(close)

    def wake(self) -> None:
        """End every registered wait."""
        for close in self._closers:
            close()
