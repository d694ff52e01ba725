"""One timed call: launched behind its worker's gate while there is nothing to compute from, then let through.

Without a gate (`held` false), as where the latency is measured or the solution runs in the judge's own process,
`launch` does nothing and the whole call is made when it is let go.
"""

from __future__ import annotations

import time
from typing import Any

from repro.judge.slots import Slots
from repro.judge.subject import Subject

# How long the judge waits until a call is launched. What waits for its own results is not, before its inputs are there.
LAUNCH_S = 0.1


class Call:
    """The armed call of one worker. launched: all of it was, by its worker's word, before its inputs were there."""

    def __init__(self, subject: Subject, slots: Slots, timeout_s: float, *, held: bool) -> None:
        assert subject.worker is not None and subject.gate is not None
        self.worker, self.gate, self.slots = subject.worker, subject.gate, slots
        self.timeout_s, self.held = timeout_s, held
        self.launched = False
        self.begin = 0.0

    def launch(self) -> None:
        """Has it enqueued. Raises as `ask` does."""
        if not self.held:
            return
        if not self.slots.spoiled:
            self.slots.spoil()
        self.worker.wake()
        self.worker.post({"op": "launch", "number": self.gate.next()}, self.timeout_s)
        self.launched = self.worker.collected(LAUNCH_S, self.timeout_s) is not None

    def let_go(self) -> None:
        """Ends the wait of a call that is not to be timed."""
        if self.held:
            self._open()

    def go(self) -> tuple[dict[str, Any], float]:
        """Lets it through; what the worker says of it, and the judge's clock around it, ms. Raises as `ask` does."""
        self.worker.post({"op": "go"}, self.timeout_s)  # is there when the worker wakes
        self.begin = time.perf_counter()
        self._open()  # wakes it first: what waking takes is in the clock of everyone, however short its kernels are
        answer = self.worker.collect(self.timeout_s)
        return answer, (time.perf_counter() - self.begin) * 1e3

    def _open(self) -> None:
        self.worker.wake()
        if self.held:
            self.gate.open()
        if self.held and not self.launched:
            self.worker.collect(self.timeout_s)
