"""The GPU before a timed call: rested, idle, with an empty L2, and with inputs that nothing has read yet.

Workers are stopped then, but work that they left in the GPU's queues is not: a kernel may wait there for the inputs.
Anything that runs after the inputs were made delays the flush that follows. Then the inputs are made again. If that
does not help, the delay counts in the call's time; if it happens often, `held_up` returns a reason for rejection.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pynvml
import torch

from repro.judge.gpu import driver
from repro.judge.gpu.memory import handle
from repro.judge.timing.sampling import CLOCK_SLACK_MS
from repro.records import result as records

# A flush that takes longer than _BUSY_RATIO times that on an idle GPU, plus _BUSY_MS, shared the GPU with other work.
# For shorter delays inputs are made again at most PATIENCE times.
_BUSY_RATIO, _BUSY_MS, BUSY_TRIES, PATIENCE = 3.0, 0.5, 25, 5
# Fewest first flushes that say anything of a variant; slacks by which slower flushes mean delayed baselines; flushes
# of baselines that are remembered.
_TELLING, _MASKED, _RECENT = 4, 2.0, 15
# Seconds of rest for each second of the call before, and at most. On an H200, 23 ms of fp32 attention vary by 3.1 %
# (standard deviation) without rest, 1.2 % with 25 ms of rest, 0.37 % with 50 ms and 0.33 % with 100 ms.
_REST, _MOST_S = 2.0, 0.25


class PowerLimit:
    """The effect of one GPU's power limit on its clocks, by NVML. Does nothing if NVML does not answer."""

    def __init__(self, uuid: str | None) -> None:
        self._handle: Any = None if uuid is None else handle(uuid)
        self.rested_s, self.rests, self.met = 0.0, 0, False

    def holds(self) -> bool:
        """Return whether the power limit holds the clocks down; NVML reports it for 0.5 s after the last load."""
        if self._handle is None:
            return False
        for query in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            try:  # a driver before 535 knows the older name only
                return bool(getattr(pynvml, query)(self._handle) & pynvml.nvmlClocksThrottleReasonSwPowerCap)
            except pynvml.NVMLError:
                continue
        return False

    def rest(self, busy_s: float) -> None:
        """Sleep in proportion to the seconds of the last load, once the power limit has held the clocks down.

        Without further rests the limit would soon act again.
        """
        self.met = self.met or self.holds()
        if self.met:
            rest_s = min(_MOST_S, _REST * busy_s)
            time.sleep(rest_s)
            self.rested_s, self.rests = self.rested_s + rest_s, self.rests + 1

    def record(self) -> records.PowerLimit:
        """Return how often and how long timed calls waited for it."""
        return records.PowerLimit(rests=self.rests, rested_s=round(self.rested_s, 3))


class Idle:
    """Makes one GPU ready for timed calls. On the CPU it only makes the inputs.

    watched: check that the GPU is idle. If not, as where the solution runs in the judge's own process, only flush it.
    """

    def __init__(self, device: torch.device, *, watched: bool) -> None:
        self.device, self.cuda = device, device.type == "cuda"
        self.watched = watched
        self.limit = PowerLimit(str(torch.cuda.get_device_properties(device).uuid) if self.cuda else None)
        self.flusher: torch.Tensor | None = None
        self.quiet_ms = 0.0
        self.first_ms: dict[str, list[float]] = {}  # by variant: the first flush after its inputs were made
        self.recent_ms: deque[float] = deque(maxlen=_RECENT)  # of the last calls of baselines
        self.beside_ms: dict[str, list[float]] = {}  # `first_ms` before `alone`
        self.again = 0  # how often inputs were made again

    def settle(self) -> None:
        """Measure a flush on an idle GPU. No worker may run."""
        size = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.flusher = torch.empty(max(2 * size, 1 << 20), dtype=torch.uint8, device=self.device)
        self.quiet_ms = min(self.flush_ms() for _ in range(15))  # queues of the GPU may hold work of stopped workers

    def flush_ms(self) -> float:
        """Empty the L2. Return the host's time in ms, which includes waiting for other work."""
        assert self.flusher is not None
        begin = time.perf_counter()
        driver.reset_persisting()  # lines that a call made persistent while it was launched
        self.flusher.zero_()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3

    def _usual_ms(self) -> float:
        """Return the usual time of a flush, ms. The host may have slowed since `settle`, for baselines as well."""
        return max(self.quiet_ms, statistics.median(self.recent_ms) if len(self.recent_ms) >= _TELLING else 0.0)

    def ready(
        self, name: str, fill: Callable[[], object], busy_s: float, *, trusted: bool, waiting: bool = False
    ) -> float | None:
        """Rest, call `fill` for the inputs of a variant, and flush.

        Return the milliseconds for which the GPU was still busy, or None if it was busy for long every time. busy_s:
        seconds of the GPU's last work. waiting: a call waits at its gate and may itself cause the delay, so fewer
        attempts are made.
        """
        if not self.cuda:
            fill()
            return 0.0
        self.limit.rest(busy_s)  # before the inputs exist
        for attempt in range((PATIENCE + 1 if waiting else BUSY_TRIES) if self.watched else 1):
            fill()
            torch.cuda.synchronize()
            took_ms = self.flush_ms()
            if attempt == 0:
                self.first_ms.setdefault(name, []).append(took_ms)
                if trusted:
                    self.recent_ms.append(took_ms)
            if not self.watched:
                return 0.0
            early_ms = took_ms - self._usual_ms()
            patient = attempt >= PATIENCE and took_ms <= _BUSY_RATIO * self.quiet_ms + _BUSY_MS
            if early_ms <= CLOCK_SLACK_MS or patient:
                return max(0.0, early_ms)
            self.again += 1
            time.sleep(0.002)
        return None

    def crowded(self, name: str) -> bool:
        """Return whether most of a variant's last calls delayed the first flush beside them."""
        last = self.first_ms.get(name, [])[-_TELLING:]
        return sum(ms > self._usual_ms() + CLOCK_SLACK_MS for ms in last) > _TELLING / 2

    def forget(self, name: str) -> None:
        """Drop a variant's flush times, since it is launched in another way from now on."""
        self.first_ms.pop(name, None)

    def held_up(self, name: str, others: Iterable[str]) -> str:
        """Return why the GPU was busy when `name` was to run, or the empty string.

        Compares the median first flush after its inputs with that of `others`. Less than the clocks' slack cannot be
        detected.
        """
        usual = [statistics.median(self.first_ms[n]) for n in others if len(self.first_ms.get(n, ())) >= _TELLING]
        mine = self.first_ms.get(name, [])
        if not usual or len(mine) < _TELLING:
            return ""
        took_ms, usual_ms = statistics.median(mine), statistics.median(usual)
        if took_ms <= usual_ms + CLOCK_SLACK_MS:
            return ""
        return f"the GPU was busy for {took_ms - usual_ms:.3g} ms after its inputs were made, while it was stopped"

    def alone(self) -> None:
        """Begin new flush times: the solutions have ended, and only baselines use the GPU."""
        self.beside_ms, self.first_ms = self.first_ms, {}

    def masked(self, names: Iterable[str]) -> str:
        """Return why flushes before calls of the baselines `names` were slowed by solutions, or the empty string."""
        chosen = list(names)
        beside, now = ([ms for n in chosen for ms in of.get(n, [])] for of in (self.beside_ms, self.first_ms))
        if min(len(beside), len(now)) < _TELLING:
            return ""
        took_ms, usual_ms = statistics.median(beside), statistics.median(now)
        if took_ms <= usual_ms + _MASKED * max(CLOCK_SLACK_MS, usual_ms):
            return ""
        return f"the GPU was busy for {took_ms - usual_ms:.3g} ms before calls of the baselines beside the solution"
