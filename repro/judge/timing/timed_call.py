"""One timed call: launched behind its worker's gate before the inputs exist, then let through.

Without a gate (`held` false) `launch` does nothing, and the whole call is made by `go`. This is so where the latency is
measured, or where the solution runs in the judge's own process.

One waiting stream takes nothing from other users of the GPU. Several waiting streams of one process (side streams,
branches of a CUDA graph) take turns and delay the judge's flush, as forbidden work would. A call that waits for its own
results cannot be launched before the inputs exist. `Launching` launches the calls of such variants late, when the
inputs exist, and the launch then counts in the variant's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from repro.judge import baselines
from repro.judge.gpu.input_buffers import Slots
from repro.judge.gpu.shared_memory import Gate
from repro.judge.implementation import Asked, Implementation, Restless
from repro.judge.processes.wire import Json
from repro.judge.timing.l2_flush_and_idle import BUSY_TRIES, PATIENCE, Idle
from repro.judge.timing.sampling import GATE_US

# How long the judge waits for a call to be launched. A call that waits for its own results is not launched by then.
_LAUNCH_S = 0.1
# How often one call that keeps the judge from the GPU is launched again. After _CROWDED calls in a row that do so, or
# that are not launched in time, a variant's calls are launched late.
_TURNS, _CROWDED = BUSY_TRIES // PATIENCE, 2
# The only baseline mode that may be launched late: the others use one stream.
_GRAPHS = "reduce_overhead"


@dataclass
class Call:
    """The armed call of one worker.

    launched: the worker reports that everything was launched before the inputs existed. gate_us: how long a kernel
    hides the launch of a call that is not `held`, microseconds.
    """

    worker: Asked
    gate: Gate
    slots: Slots
    timeout_s: float
    held: bool
    gate_us: float
    launched: bool = False
    begin: float = 0.0

    def arm(self, variant: str) -> None:
        """Have the worker do all that precedes the launch. Raises as `ask` does."""
        message = {"op": "arm", "variant": variant, "inputs": self.slots.described(), "gate_us": self.gate_us}
        self.worker.ask(message, self.timeout_s)

    def launch(self) -> None:
        """Have the worker enqueue the call. Raises as `ask` does."""
        if not self.held:
            return
        if not self.slots.spoiled:
            self.slots.spoil()
        self.worker.wake()
        self.worker.post({"op": "launch", "number": self.gate.next()}, self.timeout_s)
        self.launched = self.worker.collected(_LAUNCH_S, self.timeout_s) is not None

    def hidden(self, launch_ms: float) -> bool:
        """Return whether the call was launched before the GPU began, so that its time is the GPU's alone.

        launch_ms: how long the launch took, by the worker's report.
        """
        return self.launched if self.held else 1e3 * launch_ms <= self.gate_us

    def let_go(self) -> None:
        """Open the gate for a call that is not timed."""
        if self.held:
            self._open()

    def go(self) -> tuple[Json, float]:
        """Let the call through. Return the worker's answer and the judge's clock, ms. Raises as `ask` does."""
        self.worker.post({"op": "go"}, self.timeout_s)  # waits in the pipe until the worker resumes
        self.begin = time.perf_counter()
        self._open()  # resumes the worker first: every variant's clock includes the time to resume
        answer = self.worker.collect(self.timeout_s)
        return answer, (time.perf_counter() - self.begin) * 1e3

    def _open(self) -> None:
        self.worker.wake()
        if self.held:
            self.gate.open()
            if not self.launched:
                self.worker.collect(self.timeout_s)


@dataclass
class Launching:
    """How the calls of all variants are launched.

    held: gated calls are launched before their inputs exist, except those of variants in `late`.
    """

    idle: Idle
    slots: Slots
    timeout_s: float
    held: bool

    def __post_init__(self) -> None:
        self.late: set[str] = set()
        self._crowded: dict[str, int] = {}
        self._waited: dict[str, int] = {}

    def ready(
        self, implementation: Implementation, variant: str, fill: Callable[[], object], busy_s: float, *, gated: bool
    ) -> tuple[Call, float | None]:
        """Return the call of a variant on new inputs (`fill`), and the result of `Idle.ready`.

        The worker is at rest then. Raises as `ask` does, and SolutionRejected if it is not at rest before the inputs
        are made. A launch that does not end cannot be stopped either while it waits inside the driver, which makes room
        for spilled registers only on an idle GPU: its variant is launched late from then on.
        """
        for turn in range(_TURNS):
            call = self._call(implementation, variant, gated)
            call.arm(variant)
            call.launch()
            call.worker.stop()
            if not call.worker.rest():
                if not call.held or call.launched:
                    raise Restless(implementation)
                self.late.add(variant)
                call.let_go()
                continue
            early_ms = self.idle.ready(variant, fill, busy_s, trusted=implementation.trusted, waiting=call.held)
            again = call.held and self._again(implementation, variant, call.launched, early_ms)
            if not again or turn == _TURNS - 1:
                break
            call.let_go()
        return call, early_ms

    def _call(self, implementation: Implementation, variant: str, gated: bool) -> Call:
        held = gated and self.held and variant not in self.late
        shown = held or not gated or not self.idle.cuda or (self.held and not implementation.trusted)
        gate_us = 0.0 if shown else GATE_US  # for trusted variants only: a solution's worker could leave the gate out
        assert implementation.worker is not None and implementation.gate is not None
        return Call(implementation.worker, implementation.gate, self.slots, self.timeout_s, held, gate_us)

    def _again(self, implementation: Implementation, variant: str, launched: bool, early_ms: float | None) -> bool:
        """Return whether a waiting call must be launched once more. Add variants to `late` as needed.

        A call is repeated if the GPU was busy, probably because of this call, or if its variant is late from now on.
        """
        self._crowded[variant] = self._crowded.get(variant, 0) + 1 if early_ms is None else 0
        self._waited[variant] = 0 if launched else self._waited.get(variant, 0) + 1
        if implementation.trusted and baselines.split(variant)[0] != _GRAPHS:
            return early_ms is None
        often = _CROWDED in (self._crowded[variant], self._waited[variant])
        if often or (early_ms is not None and self.idle.crowded(variant)):
            self.late.add(variant)
            self.idle.forget(variant)
        return early_ms is None or variant in self.late
