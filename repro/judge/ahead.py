"""Torch baselines that compile while solutions are verified, each in a worker of its own that a thread looks after."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from repro.errors import JudgeError, SolutionError
from repro.judge import baselines
from repro.judge.subject import Subject
from repro.judge.trials import secret_seed
from repro.judge.verify import Evaluation

COMPILE_TIMEOUT_S = 600.0
# A baseline is compiled while solutions are verified where the GPU has room for so many times inputs and outputs.
ROOM = 6


class Ahead:
    """One baseline: its worker starts, is handed the weights and compiles a first variant."""

    def __init__(self, evaluation: Evaluation, subject: Subject, variant: str, timeout_s: float) -> None:
        self.evaluation, self.subject, self.variant, self.timeout_s = evaluation, subject, variant, timeout_s
        self.begin = self.compiling = time.monotonic()
        self.spent_s = 0.0
        self.why = ""
        self.thread = threading.Thread(target=self._work, daemon=True)

    def start(self, name: str, state: Any) -> None:
        """Begins with these weights; inputs must lie in the slots already."""
        self.weights, self.inputs = (name, state), self.evaluation.slots.told()
        self.evaluation.seat(self.subject)  # memory of the GPU is shared by the thread that has its context
        self.thread.start()

    def _work(self) -> None:
        try:
            self.evaluation.start(self.subject)
            if self.subject.worker is None:
                return  # why is told when it is timed
            self.compiling = time.monotonic()
            name, state = self.weights
            self.evaluation.load(self.subject, name, state, self._left_s())
            self.subject.ask({"op": "run", "variant": self.variant, "inputs": self.inputs}, self._left_s())
            self.subject.ask({"op": "release"}, self.timeout_s)
        except (SolutionError, JudgeError, OSError, ValueError, torch.cuda.OutOfMemoryError) as error:
            self.why = str(error)
        finally:
            self.spent_s = round(time.monotonic() - self.begin, 3)

    def _left_s(self) -> float:
        return max(1.0, self.timeout_s - (time.monotonic() - self.compiling))

    def wait(self) -> None:
        """Waits until it is done, or its time is up; a worker that ran out of it is ended."""
        self.thread.join()
        if self.why:
            self.evaluation.end(self.subject)

    def drop(self) -> None:
        """Ends it where nothing will be timed: what it compiles nobody would run."""
        while self.thread.is_alive():
            worker = self.subject.worker
            if worker is not None:
                worker.doom()
            self.thread.join(0.1)
        self.evaluation.end(self.subject)


def room(evaluation: Evaluation) -> bool:
    """Whether the GPU can hold baselines beside what is verified."""
    plan = evaluation.plan
    size = sum(plan.nbytes(i) for i in plan.tensors) + evaluation.slots.output_bytes
    return bool(torch.cuda.mem_get_info()[0] > ROOM * size)


def begin(evaluation: Evaluation, trusted: list[Subject]) -> list[Ahead]:
    """Begins to compile a first variant of each, side by side; what is at fault there is told when it is timed."""
    options, started = evaluation.options, []
    name, state = evaluation.use(not evaluation.problem.native_signal)
    evaluation.slots.fill(secret_seed(), None)
    for subject in trusted:
        tuned = subject.name == "tuner"
        # most solutions of float32 problems use TF32; where one does not, its own baseline is compiled later
        suffix = "_tf32" if tuned and evaluation.problem.dtype == "float32" else ""
        variant = (baselines.TUNED if tuned else "compile" if "compile" in options.modes else "eager") + suffix
        subject.variants = [variant] if tuned else sorted({"eager", variant})
        each = Ahead(evaluation, subject, variant, options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S)
        each.start(name, state)
        started.append(each)
    return started
