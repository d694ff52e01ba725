"""Rests before timed calls while the power limit holds the GPU's clocks down."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from repro.judge import memory

# Seconds of rest for each second that the call before took, and at most. On an H200, 23 ms of fp32 attention over and
# over vary by 3.1 % (standard deviation), with 25 ms of rest by 1.2 %, with 50 ms by 0.37 % and with 100 ms by 0.33 %.
REST, MOST_S = 2.0, 0.25


class PowerLimit:
    """What the power limit of one GPU does to its clocks, by NVML; nothing where that does not answer."""

    def __init__(self, uuid: str | None) -> None:
        self._handle: Any = None if uuid is None else memory.handle(uuid)
        self.rested_s, self.rests, self.met = 0.0, 0, False

    def holds(self) -> bool:
        """Whether it holds the clocks down now; it is told for half a second after the last load."""
        if self._handle is None:
            return False
        for query in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            try:  # a driver before 535 knows the older name alone
                return bool(getattr(pynvml, query)(self._handle) & pynvml.nvmlClocksThrottleReasonSwPowerCap)
            except pynvml.NVMLError:
                continue
        return False

    def rest(self, busy_s: float) -> None:
        """Waits, once it has held the clocks down, in proportion to the seconds that the GPU was busy for before: a
        rest makes it let go for a while, and the calls of that while would bring it back."""
        self.met = self.met or self.holds()
        if self.met:
            rest_s = min(MOST_S, REST * busy_s)
            time.sleep(rest_s)
            self.rested_s, self.rests = self.rested_s + rest_s, self.rests + 1

    def to_json(self) -> dict[str, Any]:
        """How often and how long it made timed calls wait."""
        return {"rests": self.rests, "rested_s": round(self.rested_s, 3)}
