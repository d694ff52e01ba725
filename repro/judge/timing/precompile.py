"""Compiles torch baselines while solutions are verified, in their own workers, each served by a thread."""

from __future__ import annotations

import time
from concurrent import futures
from dataclasses import dataclass

import torch

from repro.errors import JudgeError, SolutionError
from repro.judge import baselines
from repro.judge.correctness.input_cases import secret_seed
from repro.judge.correctness.tolerances import class_of
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.judge.timing import compiled
from repro.problems.plan import Weights

COMPILE_TIMEOUT_S = 600.0
# Baselines compile ahead if the GPU has room for _ROOM times inputs and outputs, and for _WORKER_BYTES a worker.
_ROOM, _WORKER_BYTES = 6, 5 << 30
_FAULTS = (SolutionError, JudgeError, OSError, ValueError, torch.cuda.OutOfMemoryError)


@dataclass
class Ahead:
    """One worker of baselines: it starts, receives the weights, and compiles the requested variants in turn."""

    evaluation: Evaluation
    implementation: Implementation
    weights: Weights

    def __post_init__(self) -> None:
        self.thread = futures.ThreadPoolExecutor(1)
        self.asked: dict[str, futures.Future[None]] = {}
        self.begin = 0.0  # monotonic time at which the latest compilation began
        self.why: dict[str, str] = {}  # variant -> why it could not be compiled

    @property
    def tuned(self) -> bool:
        """Return whether its variant is max_autotune, which tries many kernels."""
        return self.implementation.name.startswith(baselines.TUNED)

    def add(self, variants: list[str]) -> None:
        """Compile these variants, except those asked for before. Start the worker at the first.

        The slots must hold inputs by then. If the GPU has no room for it, they are compiled when they are timed.
        """
        workers = self.evaluation.workers
        if not self.asked:
            self.inputs = self.evaluation.slots.described()
            try:
                workers.seat(self.implementation)  # only this thread, with the CUDA context, can share memory
            except _FAULTS:
                workers.end(self.implementation)
                return
            self.thread.submit(workers.start, self.implementation)
        for variant in variants:
            if variant not in self.asked:
                self.asked[variant] = self.thread.submit(self._compile, variant)

    def _compile(self, variant: str) -> None:
        implementation, workers = self.implementation, self.evaluation.workers
        if implementation.worker is None or self.why:
            return  # timing reports a failed start; `wait` ends a worker whose compilation failed
        self.begin = time.monotonic()
        try:
            implementation.variants = sorted({*implementation.variants, variant})
            workers.rebind(implementation)
            workers.load(implementation, self.weights, COMPILE_TIMEOUT_S)
            run = {"op": "run", "variant": variant, "inputs": self.inputs}
            compiled.first_call(
                self.evaluation, implementation, variant, lambda: implementation.ask(run, COMPILE_TIMEOUT_S)
            )
            workers.release(implementation)
        except _FAULTS as error:
            self.why[variant] = str(error)

    def _busy(self, wait_s: float) -> bool:
        """Return whether compilations go on after these seconds."""
        return bool(futures.wait(self.asked.values(), wait_s).not_done)

    def wait(self, verified: float) -> None:
        """Wait until all variants are compiled, or end the worker when their time is up.

        A max_autotune compilation's time counts from its own start or from the end of verification (`verified`,
        monotonic), whichever is later, so that solutions take none of it away.
        """
        limit_s = self.evaluation.options.compile_timeout_s
        while self._busy(0.05):
            if self.tuned and self.begin and time.monotonic() - max(self.begin, verified) > limit_s:
                self._kill()
                self.why = dict.fromkeys(self.asked, f"timeout: compilation took longer than {limit_s:g} s")
        if self.why:
            self.evaluation.workers.end(self.implementation)
        elif self.asked and self.implementation.worker is None:  # it did not start: it is started again when timed
            self._forget()

    def _kill(self) -> None:
        while self._busy(0.0):
            worker = self.implementation.worker  # the thread itself ends one that does not start
            if worker is not None:
                worker.doom()
            self._busy(0.1)

    def _forget(self) -> None:
        self.why, self.implementation.failed = {}, ""
        self.implementation.reasons.clear()

    def drop(self) -> None:
        """End it: no solution is compared with its variants. If they are needed later, they compile when timed."""
        if self.asked:
            self._kill()
            self._forget()
        self.evaluation.workers.end(self.implementation)


def room(evaluation: Evaluation, times: int = _ROOM, workers: int = 2) -> bool:
    """Return whether the GPU has room for baselines beside the solutions under verification."""
    size = evaluation.plan.input_bytes + evaluation.slots.output_bytes
    return bool(torch.cuda.mem_get_info()[0] > times * size + workers * _WORKER_BYTES)


def begin(evaluation: Evaluation, trusted: list[Implementation], started: list[Ahead]) -> None:
    """Start the baselines' workers side by side, before the judge's reference exists, and add them to `started`.

    torch.compile with its default flags, which is needed whatever the solutions are, compiles at once. The others wait
    for the solutions' precision class, see `foresee`. Faults are reported in the timing.
    """
    weights = evaluation.expected.weights(not evaluation.problem.native_signal)
    evaluation.slots.fill(secret_seed(), None)
    for implementation in trusted:
        ahead = Ahead(evaluation, implementation, weights)
        started.append(ahead)
        implementation.variants = [] if ahead.tuned else ["eager"]
        if not ahead.tuned:
            ahead.add(["compile" if "compile" in evaluation.options.modes else "eager"])
    if evaluation.problem.dtype != "float32":  # one precision
        foresee(evaluation, started)


def foresee(evaluation: Evaluation, started: list[Ahead]) -> None:
    """Compile the baselines that solutions will be compared with, by the precision classes they have kept so far.

    A single draw tells too little: on one in eight, as of tiny inputs, a softmax in tf32 looks like one in fp32.
    """
    solutions = [s for s in evaluation.workers.solutions if not s.failed and sum(map(len, s.distances.values())) != 1]
    names = _names(evaluation, solutions)
    for ahead in started:
        mine = [
            name
            for name in names
            if baselines.worker_of(name) == ahead.implementation.name and not name.startswith("eager")
        ]
        if mine and (ahead.asked or room(evaluation, workers=1)):
            ahead.add(mine)


def wanted(evaluation: Evaluation, good: list[Implementation]) -> set[str]:
    """Return the names of the workers with baselines for these solutions."""
    return {baselines.worker_of(name) for name in _names(evaluation, good)} if good else set()


def _names(evaluation: Evaluation, solutions: list[Implementation]) -> list[str]:
    classes = {class_of(s.distances, evaluation.fixture) for s in solutions if s.distances}
    return baselines.names(evaluation.problem.dtype, {k for k in classes if k is not None}, evaluation.options.modes)
