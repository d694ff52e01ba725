"""A worker's answers where a solution raises, and the memory that a solution gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from repro.judge.gpu import driver
from repro.judge.worker import fresh_memory, server
from repro.system.jsonio import Json

CPU = torch.device("cpu")


class Leave(SystemExit):
    """A subclass, as an own exit may be."""


class Mute(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("no text")


def answered(error: BaseException, scratch: Path | None) -> Json:
    """Return a worker's answer to a call that raises."""
    worker = server.Worker(CPU, scratch)

    def call():
        raise error

    worker.entry, worker.calls["solution"] = "ModelNew", call
    return server.answer(worker, {"op": "run", "variant": "solution", "inputs": []})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RuntimeError("x" * 5_000_000), "exception", "RuntimeError: xxx"),
        (Mute(), "exception", "an exception whose text cannot be read"),
        (KeyboardInterrupt("stop"), "exception", "KeyboardInterrupt: stop"),
        (GeneratorExit(), "exception", "GeneratorExit"),
        (Leave(3), "exception", "Leave: 3"),
        (MemoryError(), "out_of_memory", "MemoryError"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory", "RuntimeError"),
    ],
)
def test_whatever_a_call_raises_is_its_error_with_a_bounded_text(error, code, text, tmp_path):
    answer = answered(error, tmp_path)
    assert answer["code"] == code and answer["error"].startswith(text) and len(answer["error"]) < 5000


def test_ctrl_c_ends_a_judge_that_runs_the_solution_itself():
    with pytest.raises(KeyboardInterrupt):
        answered(KeyboardInterrupt(), None)


def test_memory_that_nothing_writes_is_never_zero():
    with fresh_memory.meanwhile():
        for size in (1 << 12, 1 << 16, 1 << 24):
            assert torch.empty(size).isnan().all() and not torch.zeros(size).any()
        fills = set()
        for _ in range(100):
            fresh_memory.before_call(CPU)
            fills.add(torch.empty(1 << 16)[5].isnan().item())
        assert fills == {True, False}
    assert not torch.empty(1 << 25)[:100].any()


def test_free_blocks_of_the_gpu_are_filled_and_nothing_else(monkeypatch):
    sizes = [("inactive", 512), ("active_allocated", 1024), ("active_pending_free", 512), ("inactive", 2048)]
    blocks = [{"state": state, "size": size} for state, size in sizes]
    segments = [
        {"address": 10_000, "segment_pool_id": (0, 0), "blocks": blocks},
        {"address": 90_000, "segment_pool_id": (0, 7), "blocks": blocks},  # a CUDA graph's
    ]
    filled = []
    monkeypatch.setattr(fresh_memory, "_snapshot", lambda: segments)
    monkeypatch.setattr(driver, "fill", lambda address, size, byte: filled.append((address, size)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    fresh_memory.before_call(torch.device("cuda"))
    assert filled == [(10_000, 512), (12_048, 2048)]
