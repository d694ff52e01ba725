"""Compiles torch baselines while solutions are verified, in their own workers, each served by a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

import torch

from repro.errors import JudgeError, SolutionError
from repro.judge import baselines
from repro.judge.correctness.input_cases import secret_seed
from repro.judge.correctness.tolerances import class_of
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.judge.timing import compiled

COMPILE_TIMEOUT_S = 600.0
# Baselines compile ahead if the GPU has room for _ROOM times inputs and outputs, and for _WORKER_BYTES a worker.
_ROOM, _WORKER_BYTES = 6, 5 << 30
_FAULTS = (SolutionError, JudgeError, OSError, ValueError, torch.cuda.OutOfMemoryError)


class Ahead:
    """One worker of baselines: it starts, receives the weights, and compiles the requested variants in turn."""

    def __init__(
        self, evaluation: Evaluation, implementation: Implementation, weights: tuple[str, Any], timeout_s: float
    ) -> None:
        self.evaluation, self.implementation = evaluation, implementation
        self.weights, self.timeout_s = weights, timeout_s
        self.queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.asked: list[str] = []
        self.begin = time.monotonic()
        self.compiling = 0.0  # monotonic time at which the latest compilation began
        # Seconds until each variant was compiled, since its turn began; for the first one since the worker's start.
        self.spent_s: dict[str, float] = {}
        self.why: dict[str, str] = {}  # variant -> why it could not be compiled
        self.thread = threading.Thread(target=self._work, daemon=True)

    @property
    def tuned(self) -> bool:
        """Return whether its variant is max_autotune, which tries many kernels."""
        return self.implementation.name.startswith(baselines.TUNED)

    def add(self, variants: list[str]) -> None:
        """Compile these variants, except those asked for before. Start the worker's thread at the first.

        The slots must hold inputs by then.
        """
        if variants and not self.asked:
            self.begin = time.monotonic()
            self.inputs = self.evaluation.slots.described()
            self.evaluation.workers.seat(
                self.implementation
            )  # only this thread, with the CUDA context, can share memory
            self.thread.start()
        for variant in variants:
            if variant not in self.asked:
                self.asked.append(variant)
                self.queue.put(variant)

    def _work(self) -> None:
        with contextlib.suppress(*_FAULTS):
            self.evaluation.workers.start(self.implementation)
        while (variant := self.queue.get()) is not None:
            if self.implementation.worker is None or self.why:
                continue  # timing reports a failed start; `wait` ends a worker whose compilation failed
            self.compiling = time.monotonic()
            try:
                self._compile(variant)
            except _FAULTS as error:
                self.why[variant] = str(error)
            self.spent_s[variant] = round(time.monotonic() - (self.compiling if self.spent_s else self.begin), 3)

    def _compile(self, variant: str) -> None:
        name, state = self.weights
        self.implementation.variants = sorted({*self.implementation.variants, variant})
        self.evaluation.workers.rebind(self.implementation)
        self.evaluation.workers.load(self.implementation, name, state, self._left_s())
        with compiled.kept(self.evaluation, self.implementation, variant):
            self.implementation.ask({"op": "run", "variant": variant, "inputs": self.inputs}, self._left_s())
        self.implementation.ask({"op": "release"}, self.timeout_s)

    def _left_s(self) -> float:
        if self.tuned:  # `wait` bounds it
            return COMPILE_TIMEOUT_S
        return max(1.0, self.timeout_s - (time.monotonic() - self.compiling))

    def wait(self, verified: float) -> None:
        """Wait until all variants are compiled, or end the worker when their time is up.

        A max_autotune compilation's time counts from its own start or from the end of verification (`verified`,
        monotonic), whichever is later, so that solutions take none of it away.
        """
        if not self.asked:
            return
        self.queue.put(None)
        while self.thread.is_alive():
            self.thread.join(0.05)
            late = self.compiling and time.monotonic() - max(self.compiling, verified) > self.timeout_s
            if self.tuned and late and len(self.spent_s) < len(self.asked) and self.thread.is_alive():
                self._kill()
                self.why = dict.fromkeys(self.asked, f"timeout: compilation took longer than {self.timeout_s:g} s")
        if self.why:
            self.evaluation.workers.end(self.implementation)
        elif self.implementation.worker is None:  # it did not start: it is started again when it is timed
            self._forget()

    def _kill(self) -> None:
        while self.thread.is_alive():
            worker = self.implementation.worker  # the thread itself ends one that does not start
            if worker is not None:
                worker.doom()
            self.thread.join(0.1)

    def _forget(self) -> None:
        for variant in self.why:
            self.spent_s.pop(variant, None)
        self.why, self.implementation.failed = {}, ""
        self.implementation.reasons.clear()

    def drop(self) -> None:
        """End it: no solution is compared with its variants. If they are needed later, they compile when timed."""
        if self.asked:
            self.queue.put(None)
            self._kill()
            self._forget()
        self.evaluation.workers.end(self.implementation)


def room(evaluation: Evaluation, times: int = _ROOM, workers: int = 2) -> bool:
    """Return whether the GPU has room for baselines beside the solutions under verification."""
    plan = evaluation.plan
    size = sum(plan.nbytes(i) for i in plan.tensors) + evaluation.slots.output_bytes
    return bool(torch.cuda.mem_get_info()[0] > times * size + workers * _WORKER_BYTES)


def begin(evaluation: Evaluation, trusted: list[Implementation], started: list[Ahead]) -> None:
    """Start the baselines' workers side by side, before the judge's reference exists, and add them to `started`.

    torch.compile with its default flags, which is needed whatever the solutions are, compiles at once. The others wait
    for the solutions' precision class, see `foresee`. Faults are reported in the timing.
    """
    options = evaluation.options
    weights = evaluation.expected.weights(not evaluation.problem.native_signal)
    evaluation.slots.fill(secret_seed(), None)
    for implementation in trusted:
        tuned = implementation.name != "baseline"
        ahead = Ahead(evaluation, implementation, weights, options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S)
        started.append(ahead)
        implementation.variants = [] if tuned else ["eager"]
        if not tuned:
            _add(ahead, ["compile" if "compile" in options.modes else "eager"])
    if evaluation.problem.dtype != "float32":  # one precision
        foresee(evaluation, started)


def _add(ahead: Ahead, variants: list[str]) -> None:
    """Compile variants in this worker. If the GPU has no room for it, they are compiled when they are timed."""
    try:
        ahead.add(variants)
    except _FAULTS:
        ahead.evaluation.workers.end(ahead.implementation)


def foresee(evaluation: Evaluation, started: list[Ahead]) -> None:
    """Compile the baselines that solutions will be compared with, by the precision classes they have kept so far."""
    names = _names(evaluation, [s for s in evaluation.workers.solutions if not s.failed])
    for ahead in started:
        mine = [name for name in names if baselines.worker_of(name) == ahead.implementation.name and not _eager(name)]
        if mine and (ahead.asked or room(evaluation, workers=1)):
            _add(ahead, mine)


def wanted(evaluation: Evaluation, good: list[Implementation]) -> set[str]:
    """Return the names of the workers with baselines for these solutions."""
    return {baselines.worker_of(name) for name in _names(evaluation, good)} if good else set()


def _names(evaluation: Evaluation, solutions: list[Implementation]) -> list[str]:
    classes = {class_of(s.distances, evaluation.fixture) for s in solutions if s.distances}
    return baselines.names(evaluation.problem.dtype, {k for k in classes if k is not None}, evaluation.options.modes)


def _eager(variant: str) -> bool:
    return baselines.split(variant)[0] == "eager"
