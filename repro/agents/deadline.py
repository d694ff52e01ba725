"""When an agent must stop, and how whatever it waits for is woken: one object shared by all threads of a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Stopped(Exception):
    """The session ends: raised in the agent's thread where it waits, never printed."""


class Deadline:
    """The wall budget and every other reason to stop.

    wall_s: seconds from now, or None for no bound. `reason` is empty until the agent must stop: `wall`, or the name of
    a signal.
    """

    def __init__(self, wall_s: float | None) -> None:
        self.begin = time.monotonic()
        self.wall_s = wall_s
        self.reason = ""
        self._event = threading.Event()
        self._closers: list[Callable[[], None]] = []

    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.begin

    def remaining_s(self, otherwise: float) -> float:
        """Seconds left, at most `otherwise`."""
        if self.wall_s is None:
            return otherwise
        return max(0.0, min(otherwise, self.wall_s - self.elapsed_s()))

    def passed(self) -> bool:
        """Whether the wall budget is spent."""
        return self.wall_s is not None and self.elapsed_s() >= self.wall_s

    def stop(self, reason: str) -> None:
        """Asks the agent to stop; the first reason counts. Safe in a signal handler: it wakes nobody by itself."""
        self.reason = self.reason or reason
        self._event.set()

    def stopping(self) -> bool:
        """Whether the agent must stop; true from the moment on at which the wall budget is spent."""
        if self.passed():
            self.stop("wall")
        return self._event.is_set()

    def check(self) -> None:
        """Raises Stopped where the agent must stop."""
        if self.stopping():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Waits, but not beyond a stop. Raises Stopped."""
        if self._event.wait(seconds):
            raise Stopped

    def on_stop(self, close: Callable[[], None]) -> None:
        """Registers what ends a blocking wait of the agent's thread; the session calls it from another thread."""
        self._closers.append(close)

    def wake(self) -> None:
        """Ends every registered wait."""
        for close in self._closers:
            close()
