"""One timed call: launched behind its worker's gate while there is nothing to compute from, then let through.

Without a gate (`held` false), as where the latency is measured or the solution runs in the judge's own process,
`launch` does nothing and the whole call is made when it is let go.

One stream that waits takes nothing from whoever else is on the GPU. Several of one process (side streams, branches of a
CUDA graph) take turns at it and keep the judge's flush waiting, as work would that must not be there. And what waits
for results of its own cannot be launched before there are any. `Launching` has the calls of such a variant launched
when their inputs are there, at the variant's cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from repro.errors import SolutionRejected
from repro.judge import baselines
from repro.judge.idle import BUSY_TRIES, PATIENCE, Idle
from repro.judge.slots import Slots
from repro.judge.subject import RUNS, Subject
from repro.judge.timing import GATE_US

# How long the judge waits until a call is launched. What waits for its own results is not, before its inputs are there.
LAUNCH_S = 0.1
# So often a call is launched that keeps the judge from the GPU. After so many in a row that do, or that are not
# launched in time, those of a variant are launched late.
TURNS, CROWDED = BUSY_TRIES // PATIENCE, 2
# The baselines that may be late: the others have one stream.
GRAPHS = "reduce_overhead"


class Call:
    """The armed call of one worker. launched: all of it was, by its worker's word, before its inputs were there.
    gate_us: how long a kernel hides the launch of one that is not `held`."""

    def __init__(self, subject: Subject, slots: Slots, timeout_s: float, *, held: bool, gate_us: float) -> None:
        assert subject.worker is not None and subject.gate is not None
        self.worker, self.gate, self.slots = subject.worker, subject.gate, slots
        self.timeout_s, self.held, self.gate_us = timeout_s, held, gate_us
        self.launched = False
        self.begin = 0.0

    def arm(self, variant: str) -> None:
        """Has everything done that can be before it is launched. Raises as `ask` does."""
        message = {"op": "arm", "variant": variant, "inputs": self.slots.told(), "gate_us": self.gate_us}
        self.worker.ask(message, self.timeout_s)

    def launch(self) -> None:
        """Has it enqueued. Raises as `ask` does."""
        if not self.held:
            return
        if not self.slots.spoiled:
            self.slots.spoil()
        self.worker.wake()
        self.worker.post({"op": "launch", "number": self.gate.next()}, self.timeout_s)
        self.launched = self.worker.collected(LAUNCH_S, self.timeout_s) is not None

    def hidden(self, launch_ms: float) -> bool:
        """Whether its time is the GPU's alone, for it was launched before that began. launch_ms: how long that took, as
        the worker says."""
        return self.launched if self.held else 1e3 * launch_ms <= self.gate_us

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


class Launching:
    """How the calls of all variants are launched. held: gated ones before their inputs are there, but for those of
    variants that are found to be `late`."""

    def __init__(self, idle: Idle, slots: Slots, timeout_s: float, *, held: bool) -> None:
        self.idle, self.slots, self.timeout_s, self.held = idle, slots, timeout_s, held
        self.late: set[str] = set()
        self._crowded: dict[str, int] = {}
        self._waited: dict[str, int] = {}

    def ready(
        self, subject: Subject, variant: str, fill: Callable[[], object], busy_s: float, *, gated: bool
    ) -> tuple[Call, float | None]:
        """The call of a variant, whose worker stands still, with new inputs (`fill`), and what `Idle.ready` says of the
        GPU then. Raises as `ask` does, and SolutionRejected where it does not stand still before there are inputs."""
        for turn in range(TURNS):
            call = self._call(subject, variant, gated)
            call.arm(variant)
            call.launch()
            call.worker.stop()
            if not call.worker.rest():
                raise SolutionRejected("background_work", RUNS)
            early_ms = self.idle.ready(variant, fill, busy_s, trusted=subject.trusted, waiting=call.held)
            again = call.held and self._again(subject, variant, call.launched, early_ms)
            if not again or turn == TURNS - 1:
                break
            call.let_go()
        return call, early_ms

    def _call(self, subject: Subject, variant: str, gated: bool) -> Call:
        held = gated and self.held and variant not in self.late
        shown = held or not gated or not self.idle.cuda or (self.held and not subject.trusted)
        gate_us = 0.0 if shown else GATE_US  # a worker could leave a solution's out
        return Call(subject, self.slots, self.timeout_s, held=held, gate_us=gate_us)

    def _again(self, subject: Subject, variant: str, launched: bool, early_ms: float | None) -> bool:
        """Whether a call that waits must be launched once more, because somebody, and by all that can be seen it, kept
        the judge from the GPU, or because it is to be late from now on. Notes the variants that are."""
        self._crowded[variant] = self._crowded.get(variant, 0) + 1 if early_ms is None else 0
        self._waited[variant] = 0 if launched else self._waited.get(variant, 0) + 1
        if subject.trusted and baselines.split(variant)[0] != GRAPHS:
            return early_ms is None
        often = CROWDED in (self._crowded[variant], self._waited[variant])
        if often or (early_ms is not None and self.idle.crowded(variant)):
            self.late.add(variant)
            self.idle.forget(variant)
        return early_ms is None or variant in self.late
