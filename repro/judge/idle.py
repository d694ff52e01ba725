"""The GPU before a timed call: rested, with inputs from which nothing was computed yet, an empty L2 and nobody on it.

Workers are stopped then, but not what they left in the GPU's queues: a kernel may wait there for the inputs. Whatever
runs after these were made delays the flush that follows. Then the inputs are made again; where that is of no use, the
delay counts as the call's time, and where it is a habit, `held_up` tells.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pynvml
import torch

from repro.judge import driver
from repro.judge.memory import handle
from repro.judge.timing import CLOCK_SLACK_MS

# A flush that takes so much longer than on an idle GPU shared it with somebody.
# For less, inputs are made again PATIENCE times.
BUSY_RATIO, BUSY_MS, BUSY_TRIES, PATIENCE = 3.0, 0.5, 25, 5
# Fewer first flushes of a variant say nothing about it; so many slacks slower were those of the baselines held up too.
TELLING, MASKED, RECENT = 4, 2.0, 15
# Seconds of rest for each second that the call before took, and at most. On an H200, 23 ms of fp32 attention over and
# over vary by 3.1 % (standard deviation), with 25 ms of rest by 1.2 %, with 50 ms by 0.37 % and with 100 ms by 0.33 %.
REST, MOST_S = 2.0, 0.25


class PowerLimit:
    """What the power limit of one GPU does to its clocks, by NVML; nothing where that does not answer."""

    def __init__(self, uuid: str | None) -> None:
        self._handle: Any = None if uuid is None else handle(uuid)
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


class Idle:
    """Makes one GPU ready for timed calls. watched: nobody may be on it then; without, as where the solution runs in
    the judge's own process, it is flushed and that is all. On the CPU inputs are made and nothing else."""

    def __init__(self, device: torch.device, *, watched: bool) -> None:
        self.device, self.cuda = device, device.type == "cuda"
        self.watched = watched
        self.limit = PowerLimit(str(torch.cuda.get_device_properties(device).uuid) if self.cuda else None)
        self.flusher: torch.Tensor | None = None
        self.quiet_ms = 0.0
        self.first_ms: dict[str, list[float]] = {}  # of a variant: the first flush after its inputs were made
        self.recent_ms: deque[float] = deque(maxlen=RECENT)  # of the last calls of baselines
        self.beside_ms: dict[str, list[float]] = {}  # the same, before `alone`
        self.again = 0  # inputs that were made again

    def settle(self) -> None:
        """Sees what a flush takes on an idle GPU. Nobody may run."""
        size = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.flusher = torch.empty(max(2 * size, 1 << 20), dtype=torch.uint8, device=self.device)
        self.quiet_ms = min(self.flush_ms() for _ in range(15))  # a queue may hold what is not stopped

    def flush_ms(self) -> float:
        """Empties the L2; by the host's clock, so that waiting for others counts."""
        assert self.flusher is not None
        begin = time.perf_counter()
        driver.reset_persisting()  # lines that a call kept in the L2 while it was launched
        self.flusher.zero_()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3

    def _usual_ms(self) -> float:
        """What a flush takes now: a host may have become slower since `settle`, and for the baselines it has too."""
        return max(self.quiet_ms, statistics.median(self.recent_ms) if len(self.recent_ms) >= TELLING else 0.0)

    def ready(
        self, name: str, fill: Callable[[], object], busy_s: float, *, trusted: bool, waiting: bool = False
    ) -> float | None:
        """Rests, calls `fill` for the inputs of a variant and flushes; milliseconds for which somebody was on the GPU
        even so, or None: somebody was on it for long every time. busy_s: seconds that the GPU worked before. waiting:
        a call that waits at its gate may be what holds it up, so that it is not tried as often."""
        if not self.cuda:
            fill()
            return 0.0
        self.limit.rest(busy_s)  # before there are inputs to compute from
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
            patient = attempt >= PATIENCE and took_ms <= BUSY_RATIO * self.quiet_ms + BUSY_MS
            if early_ms <= CLOCK_SLACK_MS or patient:
                return max(0.0, early_ms)
            self.again += 1
            time.sleep(0.002)
        return None

    def crowded(self, name: str) -> bool:
        """Whether most of the last calls of a variant held up the first flush beside them."""
        last = self.first_ms.get(name, [])[-TELLING:]
        return sum(ms > self._usual_ms() + CLOCK_SLACK_MS for ms in last) > TELLING / 2

    def forget(self, name: str) -> None:
        """What its first flushes took says nothing of a variant that is launched in another way from now on."""
        self.first_ms.pop(name, None)

    def held_up(self, name: str, others: Iterable[str]) -> str:
        """Why somebody was on the GPU when `name` was to run, or the empty string: the first flush after its inputs
        took longer than after the others'. What of a call hides so is under the slack of the clocks."""
        usual = [statistics.median(self.first_ms[n]) for n in others if len(self.first_ms.get(n, ())) >= TELLING]
        mine = self.first_ms.get(name, [])
        if not usual or len(mine) < TELLING:
            return ""
        took_ms, usual_ms = statistics.median(mine), statistics.median(usual)
        if took_ms <= usual_ms + CLOCK_SLACK_MS:
            return ""
        return f"the GPU was busy for {took_ms - usual_ms:.3g} ms after its inputs were made, while it was stopped"

    def alone(self) -> None:
        """The solutions are gone: first flushes from now on are those of a GPU that nobody else uses."""
        self.beside_ms, self.first_ms = self.first_ms, {}

    def masked(self, names: Iterable[str]) -> str:
        """Why the first flushes of the baselines `names` were no measure beside the solutions, or the empty string."""
        chosen = list(names)
        beside, now = ([ms for n in chosen for ms in of.get(n, [])] for of in (self.beside_ms, self.first_ms))
        if min(len(beside), len(now)) < TELLING:
            return ""
        took_ms, usual_ms = statistics.median(beside), statistics.median(now)
        if took_ms <= usual_ms + MASKED * max(CLOCK_SLACK_MS, usual_ms):
            return ""
        return f"the GPU was busy for {took_ms - usual_ms:.3g} ms when the baselines were to run beside it"

    def to_json(self) -> dict[str, Any]:
        """How often timed calls waited for the power limit, and inputs were made again for somebody on the GPU."""
        return {"power_limit": self.limit.to_json(), "inputs_made_again": self.again}
