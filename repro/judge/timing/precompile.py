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

COMPILE_TIMEOUT_S = 600.0
# Baselines are compiled ahead if the GPU has room for ROOM times inputs and outputs, plus WORKER_BYTES for each worker.
# With room for ROOM_FOR_ALL, every kind of max_autotune is compiled before it is known which one is needed.
ROOM, ROOM_FOR_ALL = 6, 8
WORKER_BYTES = 5 << 30
FAULTS = (SolutionError, JudgeError, OSError, ValueError, torch.cuda.OutOfMemoryError)


class Ahead:
    """One worker of baselines: it starts, receives the weights, and compiles the requested variants in turn."""

    def __init__(
        self, evaluation: Evaluation, implementation: Implementation, weights: tuple[str, Any], timeout_s: float
    ) -> None:
        self.evaluation, self.implementation, self.weights, self.timeout_s = (
            evaluation,
            implementation,
            weights,
            timeout_s,
        )
        self.dropped = False
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
            self.inputs = self.evaluation.slots.told()
            self.evaluation.workers.seat(
                self.implementation
            )  # only a thread with the CUDA context can share GPU memory
            self.thread.start()
        for variant in variants:
            if variant not in self.asked:
                self.asked.append(variant)
                self.queue.put(variant)

    def _work(self) -> None:
        with contextlib.suppress(*FAULTS):
            self.evaluation.workers.start(self.implementation)
        while (variant := self.queue.get()) is not None:
            if self.implementation.worker is None or self.why:
                continue  # timing reports a failed start; `wait` ends a worker whose compilation failed
            self.compiling = time.monotonic()
            try:
                self._compile(variant)
            except FAULTS as error:
                self.why[variant] = str(error)
            self.spent_s[variant] = round(time.monotonic() - (self.compiling if self.spent_s else self.begin), 3)

    def _compile(self, variant: str) -> None:
        name, state = self.weights
        self.implementation.variants = sorted({*self.implementation.variants, variant})
        self.evaluation.workers.rebind(self.implementation)
        self.evaluation.workers.load(self.implementation, name, state, self._left_s())
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
        if self.dropped:
            self.drop()
        elif self.asked:
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

    def dismiss(self) -> None:
        """Make it end without waiting: no solution will be compared with its variants."""
        if self.asked and not self.dropped:
            self.dropped = True
            self.queue.put(None)
            worker = self.implementation.worker
            if worker is not None:
                worker.doom()

    def drop(self) -> None:
        """End it. Its variants are compiled when they are timed, if they are needed after all."""
        self.dismiss()
        self._kill()
        self.evaluation.workers.end(self.implementation)
        if self.dropped:
            self._forget()


def room(evaluation: Evaluation, times: int = ROOM, workers: int = 2) -> bool:
    """Return whether the GPU has room for baselines beside the solutions under verification."""
    plan = evaluation.plan
    size = sum(plan.nbytes(i) for i in plan.tensors) + evaluation.slots.output_bytes
    return bool(torch.cuda.mem_get_info()[0] > times * size + workers * WORKER_BYTES)


def begin(evaluation: Evaluation, trusted: list[Implementation], started: list[Ahead]) -> None:
    """Start the baselines' workers side by side, before the judge's reference exists, and add them to `started`.

    Variants that are needed whatever the solutions are compile at once: torch.compile with its default flags, and every
    kind of max_autotune if there is room. `foresee` ends those that turn out unneeded. Faults are reported in the
    timing.
    """
    options = evaluation.options
    weights = evaluation.expected.weights(not evaluation.problem.native_signal)
    evaluation.slots.fill(secret_seed(), None)
    every = room(evaluation, ROOM_FOR_ALL, len(trusted))
    for implementation in trusted:
        tuned = implementation.name != "baseline"
        each = Ahead(evaluation, implementation, weights, options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S)
        started.append(each)
        implementation.variants = [] if tuned else ["eager"]
        if not tuned:
            _add(each, ["compile" if "compile" in options.modes else "eager"])
        elif every:
            _add(each, [implementation.name])
    if evaluation.problem.dtype != "float32":  # one precision
        foresee(evaluation, started)


def _add(each: Ahead, variants: list[str]) -> None:
    """Compile variants in this worker. If the GPU has no room for it, they are compiled when they are timed."""
    try:
        each.add(variants)
    except FAULTS:
        each.evaluation.workers.end(each.implementation)


def foresee(evaluation: Evaluation, started: list[Ahead]) -> None:
    """Compile the baselines that solutions will be compared with, by the precision classes they have kept so far.

    Once every solution has shown its class, compilations that none of them needs are ended.
    """
    running = [s for s in evaluation.workers.solutions if not s.failed]
    names = _names(evaluation, running)
    for each in started:
        mine = [name for name in names if baselines.worker_of(name) == each.implementation.name and not _eager(name)]
        if mine and not each.dropped:
            if each.asked or room(evaluation, ROOM, 1):
                _add(each, mine)
        elif each.tuned and any(s.distances for s in running) and all(s.distances for s in running):
            each.dismiss()


def wanted(evaluation: Evaluation, good: list[Implementation]) -> set[str]:
    """Return the names of the workers with baselines for these solutions."""
    return {baselines.worker_of(name) for name in _names(evaluation, good)} if good else set()


def _names(evaluation: Evaluation, solutions: list[Implementation]) -> list[str]:
    found = {class_of(s.distances, evaluation.fixture) for s in solutions if s.distances}
    return baselines.names(evaluation.problem.dtype, {k for k in found if k is not None}, evaluation.options.modes)


def _eager(variant: str) -> bool:
    return baselines.split(variant)[0] == "eager"
