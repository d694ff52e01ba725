"""The worker processes of a problem's implementations, each with its staging buffer, its gate and loaded weights."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from repro.errors import SolutionError
from repro.judge.gpu.input_buffers import Slots
from repro.judge.gpu.shared_memory import Gate
from repro.judge.implementation import Implementation, Options
from repro.judge.processes import pool
from repro.judge.processes.client import GpuUse, WorkerProcess
from repro.judge.processes.wire import Json
from repro.judge.worker.in_process import InProcess
from repro.problems.catalogue import Problem
from repro.problems.plan import Weights


class Workers:
    """Starts and ends workers, and loads weights into them.

    solutions: those under judgement now, whose workers can all access the input buffers. gpu: lets one trial, or one
    benchmark of a tuner, use the GPU at a time.
    """

    def __init__(self, problem: Problem, slots: Slots, options: Options) -> None:
        self.slots, self.options = slots, options
        self.solutions: list[Implementation] = []
        self.gpu = GpuUse()
        self._problem = asdict(problem.message())
        self._loaded: dict[str, str] = {}  # implementation -> name of the weights that its worker holds

    def seat(self, *implementations: Implementation) -> None:
        """Give a worker process, a staging buffer and a gate to each implementation without a worker."""
        device = self.slots.device
        for implementation in implementations:
            if implementation.worker is not None:
                continue
            implementation.staging = self.slots.staging()
            implementation.gate = Gate(device)
            buffers = self.slots.buffers | {"staging": implementation.staging, "gate": implementation.gate}
            if self.options.trust == "dev":
                implementation.worker = InProcess(device, buffers)
                continue
            compiles = implementation.compiles and len(self.options.modes) > 1
            kind, gpu = (pool.COMPILES, self.gpu) if compiles else (pool.PLAIN, None)
            implementation.worker = WorkerProcess(
                implementation.name, device, buffers, trusted=implementation.trusted, kind=kind, gpu=gpu
            )

    def start(self, *implementations: Implementation, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start workers side by side, and have each import its file. A fault becomes the implementation's.

        meanwhile: runs while workers make their contexts. Nothing of a solution runs before it has returned.
        """
        self.seat(*implementations)
        early = threading.Lock()
        define = partial(self._define, early)
        if self.options.trust == "dev" or not implementations:
            meanwhile()
            faults = list(map(define, implementations))
        else:
            with ThreadPoolExecutor(len(implementations)) as threads:
                with early:
                    answers = threads.map(define, implementations)
                    meanwhile()
                faults = list(answers)
        for implementation, error in zip(implementations, faults, strict=True):
            if error is not None:
                implementation.fail(error, "import")
                self.end(implementation)

    def _define(self, early: threading.Lock, implementation: Implementation) -> SolutionError | None:
        """Have a worker import its file once `early` is free. Return a fault."""
        message = {
            "op": "define",
            "source": implementation.text,
            "entry": implementation.entry,
            "problem": self._problem,
            "inputs": len(self.slots.plan.spec),
        }
        try:
            assert implementation.worker is not None
            implementation.hello = implementation.worker.start()
            with early:
                pass
            self.ask(implementation, message)
        except SolutionError as error:
            return error
        return None

    def pass_on(self, old: Implementation, new: Implementation) -> None:
        """Give the worker of a solution to another one, which it then defines in its place."""
        new.worker, new.staging, new.gate = old.worker, old.staging, old.gate
        old.worker = old.staging = old.gate = None
        self._forget(old)

    def end(self, *implementations: Implementation) -> None:
        """End workers that are no longer needed, which frees their GPU memory."""
        if len(implementations) > 1:  # destroying a CUDA context takes a while, so several end side by side
            for implementation in implementations:
                if implementation.worker is not None:
                    implementation.worker.doom()
        for implementation in implementations:
            if implementation.worker is not None:
                implementation.worker.close()
                implementation.worker = None
                self._forget(implementation)
            for buffer in (implementation.staging, implementation.gate):
                if buffer is not None:
                    buffer.poison()  # its memory may serve another worker
                    buffer.close()
            implementation.staging = implementation.gate = None

    def stop_others(self, implementation: Implementation) -> None:
        """Stop every solution but one, since all of them can access the input buffers."""
        for other in self.solutions:
            if other is not implementation and other.worker is not None:
                with contextlib.suppress(SolutionError):  # reported when its own turn comes
                    other.worker.stop()

    def ask(self, implementation: Implementation, message: Mapping[str, object], timeout_s: float = 0.0) -> Json:
        """Send one request to a worker and return the answer. timeout_s: 0 is the usual limit. Raises SolutionError."""
        return implementation.ask(message, timeout_s or self.options.timeout_s)

    def call(
        self, implementation: Implementation, variant: str = "", timeout_s: float = 0.0, *, fill: str = ""
    ) -> Json:
        """Return the answer to a call on the inputs in the buffers. fill: of new memory, `marks` or `zeros`."""
        inputs = self.slots.described()
        message = {"op": "run", "variant": variant or implementation.variants[0], "inputs": inputs, "fill": fill}
        return self.ask(implementation, message, timeout_s)

    def release(self, implementation: Implementation) -> None:
        """Have a worker free its outputs and cached memory."""
        self.ask(implementation, {"op": "release"})

    def rest(self, implementation: Implementation, *, release: bool = False) -> None:
        """Stop a worker until it is used again; end it if it cannot be stopped. release: it gives up its memory."""
        try:
            if release:
                self.release(implementation)
            if implementation.worker is not None:
                implementation.worker.stop()
        except SolutionError:
            self.end(implementation)

    def load(self, implementation: Implementation, state: Weights, timeout_s: float = 0.0) -> None:
        """Send the weights to a worker in pieces through the staging buffer, and have it load them, unless it holds
        those of this name. timeout_s bounds the loading."""
        if self._loaded.get(implementation.name) == state.name:
            return
        self.send(implementation, state)
        message = {"op": "load", "init": state.init, "variants": implementation.variants}
        self.ask(implementation, message, timeout_s)
        self._loaded[implementation.name] = state.name

    def rebind(self, implementation: Implementation) -> None:
        """Have the next `load` load the weights whatever the worker holds, which binds new variants."""
        self._loaded.pop(implementation.name, None)

    def _forget(self, implementation: Implementation) -> None:
        self.rebind(implementation)
        implementation.classes.clear()
        implementation.made.clear()

    def send(self, implementation: Implementation, state: Weights) -> None:
        """Send tensors to a worker in pieces through the staging buffer."""
        staging = implementation.staging
        assert staging is not None
        for key, value in state.state.items():
            flat = value.contiguous().view(-1)
            step = staging.nbytes // value.element_size()
            piece = {
                "op": "piece",
                "name": key,
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
            }
            for start in range(0, max(1, flat.numel()), step):
                part = flat[start : start + step]
                staging.view(value.dtype, (part.numel(),)).copy_(part)
                self.slots.synchronize()
                self.ask(implementation, piece | {"start": start, "count": part.numel()})
