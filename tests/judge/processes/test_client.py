"""The judge's client of a worker: benchmarks of torch.compile's tuner have the GPU alone."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque

import pytest
import torch

from repro.errors import SolutionDied, SolutionRejected
from repro.judge.processes.client import GpuUse, WorkerProcess
from repro.judge.processes.wire import TUNES, Channel, ChannelClosed
from repro.judge.worker import server


def test_benchmarks_go_one_after_the_other_and_before_the_next_trial():
    gpu, order, begun = GpuUse(), [], threading.Event()

    def tune(name):
        begun.set()
        with gpu.tuning():
            order.append(f"{name} begins")
            time.sleep(0.02)
            order.append(f"{name} ends")

    tuners = [threading.Thread(target=tune, args=(name,)) for name in "ab"]
    with gpu.trial():
        for tuner in tuners:
            tuner.start()
        assert begun.wait(5)
        while gpu._tuners < 2:
            time.sleep(0.001)
        order.append("first trial ends")
    with gpu.trial():
        order.append("second trial")
    for tuner in tuners:
        tuner.join(5)
    assert order[0] == "first trial ends" and order[-1] == "second trial"
    assert [each.split()[0] for each in order[1:-1]] in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_a_failed_benchmark_or_trial_leaves_the_gpu():
    gpu = GpuUse()
    for use in (gpu.tuning, gpu.trial, gpu.tuning):
        with pytest.raises(OSError), use():
            raise OSError


class Wired:
    """A client, and the channel of its worker, which a thread serves."""

    def __init__(self, gpu: GpuUse | None):
        (read, answers), (requests, write) = os.pipe(), os.pipe()
        self.client, self.worker = object.__new__(WorkerProcess), Channel(requests, answers, from_judge=True)
        self.client.channel, self.client.gpu, self.client.due = Channel(read, write), gpu, deque()
        self.client.name, self.client.stopped = "baseline", False

    def answers(self, work) -> threading.Thread:
        def serve():
            number = self.worker.receive()["n"]
            with contextlib.suppress(ChannelClosed):
                self.worker.send({"n": number, "found": work()})

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread


def test_the_tuner_asks_before_each_of_its_benchmarks(monkeypatch):
    """In the pinned torch every tuner calls this one method of this one object."""
    from torch._inductor.runtime.benchmarking import benchmarker  # takes seconds, which only this test needs

    gpu, seen = GpuUse(), []

    def benchmark(call, **options):
        seen.append(gpu._used)
        if options:
            raise RuntimeError("it does not fit")
        return 1.5

    monkeypatch.setattr(benchmarker, "benchmark_gpu", benchmark)
    wired = Wired(gpu)
    server.tune_alone(wired.worker)
    x = torch.ones(2, device="meta")

    def work():
        with pytest.raises(RuntimeError, match="does not fit"):
            benchmarker.benchmark_gpu(x.exp, rep=40)
        return [benchmarker.benchmark_gpu(x.exp), benchmarker.benchmark(torch.exp, (x,), {})]

    served = wired.answers(work)
    answer = wired.client.ask({"op": "run"}, 10)
    served.join(10)
    assert answer == {"found": [1.5, 1.5]} and seen == [True] * 3 and not gpu._used


def test_a_worker_that_ends_within_a_benchmark_leaves_the_gpu():
    gpu = GpuUse()
    wired = Wired(gpu)

    def end():
        wired.worker.send({TUNES: True})
        wired.worker.receive()
        wired.worker.close()

    wired.client._death = lambda op: SolutionDied("worker_exited", op)  # type: ignore[method-assign]
    wired.answers(lambda: end())
    with pytest.raises(SolutionDied):
        wired.client.ask({"op": "run"}, 10)
    assert not gpu._used


def test_a_solution_cannot_hold_the_gpu():
    wired = Wired(None)
    killed = []
    wired.client.kill = lambda: killed.append(True)  # type: ignore[method-assign]
    wired.answers(lambda: wired.worker.send({TUNES: True}))
    with pytest.raises(SolutionRejected):
        wired.client.ask({"op": "run"}, 10)
    assert killed == [True]
