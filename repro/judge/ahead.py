"""Torch baselines that compile while solutions are verified, in workers of their own that a thread each looks after."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

import torch

from repro.errors import JudgeError, SolutionError
from repro.judge import baselines
from repro.judge.limits import class_of
from repro.judge.subject import Subject
from repro.judge.trials import secret_seed
from repro.judge.verify import Evaluation

COMPILE_TIMEOUT_S = 600.0
# Baselines are compiled while solutions are verified where the GPU has room for so many times inputs and outputs and
# WORKER_BYTES for each worker; every kind of max_autotune before anybody knows which is wanted, where there is more.
ROOM, ROOM_FOR_ALL = 6, 8
WORKER_BYTES = 5 << 30
FAULTS = (SolutionError, JudgeError, OSError, ValueError, torch.cuda.OutOfMemoryError)


class Ahead:
    """One worker of baselines: it starts, is handed the weights, and compiles what it is told to, in turn."""

    def __init__(self, evaluation: Evaluation, subject: Subject, weights: tuple[str, Any], timeout_s: float) -> None:
        self.evaluation, self.subject, self.weights, self.timeout_s = evaluation, subject, weights, timeout_s
        self.dropped = False
        self.queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.told: list[str] = []
        self.begin = time.monotonic()
        self.compiling = 0.0  # since when its last variant is compiled
        # Seconds until each was compiled, from when it was this worker's turn; the first from the worker's start.
        self.spent_s: dict[str, float] = {}
        self.why: dict[str, str] = {}  # variant -> why it could not be compiled
        self.thread = threading.Thread(target=self._work, daemon=True)

    @property
    def tuned(self) -> bool:
        """Whether it tries every kernel that it can think of."""
        return self.subject.name.startswith(baselines.TUNED)

    def add(self, variants: list[str]) -> None:
        """Compiles these too, but for those that it was told of before; begins with the first. Inputs must lie in the
        slots by then."""
        if variants and not self.told:
            self.begin = time.monotonic()
            self.inputs = self.evaluation.slots.told()
            self.evaluation.seat(self.subject)  # memory of the GPU is shared by the thread that has its context
            self.thread.start()
        for variant in variants:
            if variant not in self.told:
                self.told.append(variant)
                self.queue.put(variant)

    def _work(self) -> None:
        with contextlib.suppress(*FAULTS):
            self.evaluation.start(self.subject)
        while (variant := self.queue.get()) is not None:
            if self.subject.worker is None or self.why:
                continue  # why it did not start is told when it is timed; a worker that failed once is ended by `wait`
            self.compiling = time.monotonic()
            try:
                self._compile(variant)
            except FAULTS as error:
                self.why[variant] = str(error)
            self.spent_s[variant] = round(time.monotonic() - (self.compiling if self.spent_s else self.begin), 3)

    def _compile(self, variant: str) -> None:
        name, state = self.weights
        self.subject.variants = sorted({*self.subject.variants, variant})
        self.evaluation.loaded.pop(self.subject.name, None)  # a variant is bound when weights are loaded
        self.evaluation.load(self.subject, name, state, self._left_s())
        self.subject.ask({"op": "run", "variant": variant, "inputs": self.inputs}, self._left_s())
        self.subject.ask({"op": "release"}, self.timeout_s)

    def _left_s(self) -> float:
        if self.tuned:  # `wait` bounds it
            return COMPILE_TIMEOUT_S
        return max(1.0, self.timeout_s - (time.monotonic() - self.compiling))

    def wait(self, verified: float) -> None:
        """Waits until all that it was told of is compiled, or its time is up; a worker that ran out of it is ended.
        What is tuned has its time from when it began, or from when the solutions were verified (`verified`, monotonic),
        whichever is later: no solution takes any of it away."""
        if self.dropped:
            self.drop()
        elif self.told:
            self.queue.put(None)
            while self.thread.is_alive():
                self.thread.join(0.05)
                late = self.compiling and time.monotonic() - max(self.compiling, verified) > self.timeout_s
                if self.tuned and late and len(self.spent_s) < len(self.told) and self.thread.is_alive():
                    self._kill()
                    self.why = dict.fromkeys(self.told, f"timeout: it took longer than {self.timeout_s:g} s")
            if self.why:
                self.evaluation.end(self.subject)
            elif self.subject.worker is None:  # it did not start: once more, when it is timed
                self._forget()

    def _kill(self) -> None:
        while self.thread.is_alive():
            worker = self.subject.worker  # the thread ends one that does not start
            if worker is not None:
                worker.doom()
            self.thread.join(0.1)

    def _forget(self) -> None:
        for variant in self.why:
            self.spent_s.pop(variant, None)
        self.why, self.subject.failed = {}, ""
        self.subject.reasons.clear()

    def dismiss(self) -> None:
        """Has it end, and does not wait for that: nothing will be compared with what it compiles."""
        if self.told and not self.dropped:
            self.dropped = True
            self.queue.put(None)
            worker = self.subject.worker
            if worker is not None:
                worker.doom()

    def drop(self) -> None:
        """Ends it. Should its baselines be wanted after all, they are compiled when they are timed."""
        self.dismiss()
        self._kill()
        self.evaluation.end(self.subject)
        if self.dropped:
            self._forget()


def room(evaluation: Evaluation, times: int = ROOM, workers: int = 2) -> bool:
    """Whether the GPU can hold baselines beside what is verified."""
    plan = evaluation.plan
    size = sum(plan.nbytes(i) for i in plan.tensors) + evaluation.slots.output_bytes
    return bool(torch.cuda.mem_get_info()[0] > times * size + workers * WORKER_BYTES)


def begin(evaluation: Evaluation, trusted: list[Subject], started: list[Ahead]) -> None:
    """Starts the baselines' workers side by side, before the judge has its reference, and notes them in `started`.
    What needs no solution is compiled at once: torch.compile with its own flags, and max_autotune with every kind of
    flags, of which `foresee` ends those that nobody will be compared with. A fault is told when it is timed."""
    options = evaluation.options
    weights = evaluation.weights(not evaluation.problem.native_signal)
    evaluation.slots.fill(secret_seed(), None)
    every = room(evaluation, ROOM_FOR_ALL, len(trusted))
    for subject in trusted:
        tuned = subject.name != "baseline"
        each = Ahead(evaluation, subject, weights, options.compile_timeout_s if tuned else COMPILE_TIMEOUT_S)
        started.append(each)
        subject.variants = [] if tuned else ["eager"]
        if not tuned:
            _add(each, ["compile" if "compile" in options.modes else "eager"])
        elif every:
            _add(each, [subject.name])
    if evaluation.problem.dtype != "float32":  # one precision
        foresee(evaluation, started)


def _add(each: Ahead, variants: list[str]) -> None:
    """Has them compiled; where its worker has no room, they are compiled when they are timed."""
    try:
        each.add(variants)
    except FAULTS:
        each.evaluation.end(each.subject)


def foresee(evaluation: Evaluation, started: list[Ahead]) -> None:
    """Has the baselines compiled that solutions will be compared with, by the classes that they have kept so far; where
    all have shown theirs, what none of them needs is not compiled further."""
    running = [s for s in evaluation.subjects if not s.failed]
    names = _names(evaluation, running)
    for each in started:
        mine = [name for name in names if baselines.worker_of(name) == each.subject.name and not _eager(name)]
        if mine and not each.dropped:
            if each.told or room(evaluation, ROOM, 1):
                _add(each, mine)
        elif each.tuned and any(s.distances for s in running) and all(s.distances for s in running):
            each.dismiss()


def wanted(evaluation: Evaluation, good: list[Subject]) -> set[str]:
    """The workers whose baselines these solutions will be compared with."""
    return {baselines.worker_of(name) for name in _names(evaluation, good)} if good else set()


def _names(evaluation: Evaluation, solutions: list[Subject]) -> list[str]:
    found = {class_of(s.distances, evaluation.fixture) for s in solutions if s.distances}
    return baselines.names(evaluation.problem.dtype, {k for k in found if k is not None}, evaluation.options.modes)


def _eager(variant: str) -> bool:
    return baselines.split(variant)[0] == "eager"
