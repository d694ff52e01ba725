"""Measured ceilings of this GPU, and two times of a problem that follow: the floor, and the impossible time."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from repro.judge.correctness.precision import exact_float32
from repro.problems.catalogue import ITEMSIZE, Problem
from repro.records.result import Ceilings

# Size of copied, read or written memory: starting and ending such a kernel is less than 0.3 % of its time of 1 ms.
_COPY_BYTES, _COPY_SHARE = 2 << 30, 16
_MATMUL_SIZE = 8192
_BURST = 8
# A time below this fraction of what the ceilings allow is impossible. They are known to a few per cent.
_IMPOSSIBLE = 0.9


def _median_ms(call: Callable[[], Any], repeats: int) -> float:
    """Return the median of `repeats` bursts of _BURST calls, ms a call. A single call of 0.25 ms reads 3 % high."""
    call()
    samples: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(_BURST):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / _BURST)
    return statistics.median(samples)


def _rates(device: torch.device) -> dict[str, float]:
    """Measure copy, read, write and matmul ceilings, TB/s and TFLOP/s, on random data."""
    total = torch.cuda.get_device_properties(device).total_memory
    size = int(min(_COPY_BYTES, total // _COPY_SHARE >> 20 << 20))
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    result = {"copy_tb_s": 2 * size / _median_ms(lambda: target.copy_(source), 5) / 1e9}
    # A float64 sum over half as many elements is bound by memory where a float32 sum may be bound by additions.
    wide = source.view(torch.float64)
    result["read_tb_s"] = size / min(_median_ms(s.sum, 5) for s in (source, wide)) / 1e9
    result["write_tb_s"] = size / _median_ms(lambda: source.fill_(1.0), 5) / 1e9
    source = target = wide = torch.empty(0)
    torch.cuda.empty_cache()
    flop = 2.0 * _MATMUL_SIZE**3
    for name, dtype, tf32, repeats in (
        ("bf16_tflop_s", torch.bfloat16, False, 5),
        ("fp16_tflop_s", torch.float16, False, 5),
        ("tf32_tflop_s", torch.float32, True, 3),
        ("fp32_tflop_s", torch.float32, False, 1),
    ):
        a, b = torch.randn(2, _MATMUL_SIZE, _MATMUL_SIZE, device=device, dtype=dtype)
        with exact_float32():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            result[name] = flop / _median_ms(functools.partial(torch.matmul, a, b), repeats) / 1e9
        del a, b
        torch.cuda.empty_cache()
    return {name: round(value, 3) for name, value in result.items()}


@functools.cache
def measure(device: torch.device) -> Ceilings:
    """Return the ceilings of a GPU. It takes about a second."""
    return Ceilings.model_validate(_rates(device))


def rate(klass: str, ceilings: Mapping[str, float]) -> float:
    """Return the TFLOP/s that bound a result of this precision class.

    The tf32 class also holds fp16 kernels, so its rate is fp16's. An honest fp32 product can be split into three of
    half the mantissa (tf32 or bf16), so its rate is at least a third of theirs.
    """
    if klass == "fp32":
        return max(ceilings["fp32_tflop_s"], ceilings["tf32_tflop_s"] / 3, ceilings["bf16_tflop_s"] / 3)
    return ceilings["bf16_tflop_s" if klass == "bf16" else "fp16_tflop_s"]


def _bytes(problem: Problem) -> int:
    assert problem.work is not None
    return (problem.work.read_elements + problem.work.written_elements) * ITEMSIZE[problem.dtype]


def _memory_ms(problem: Problem, ceilings: Mapping[str, float]) -> float:
    """Return the time of the compulsory bytes, ms, at the rate of their mix of reads and writes.

    Reading, copying and writing are measured; the time of a byte is interpolated between them. Memory that is only read
    is faster than in a copy.
    """
    assert problem.work is not None
    read, written = problem.work.read_elements, problem.work.written_elements
    copy = ceilings["copy_tb_s"]
    pure = max(copy, ceilings["read_tb_s" if read > written else "write_tb_s"])
    mixed = 2 * min(read, written) / (read + written)
    return _bytes(problem) * (mixed / copy + (1 - mixed) / pure) / 1e9


def floor_ms(problem: Problem, klass: str, ceilings: Mapping[str, float]) -> float | None:
    """Return the lower bound of an efficient kernel's time, ms; None if the problem's work is unknown.

    It is the larger of the bytes' time and the operations' time at the class's rate. Problems without contractions are
    bound by memory.
    """
    if problem.work is None:
        return None
    return max(_memory_ms(problem, ceilings), problem.work.flop / rate(klass, ceilings) / 1e9)


def impossible_ms(problem: Problem, klass: str, ceilings: Mapping[str, float]) -> float | None:
    """Return the time in ms below which no honest kernel can be; None if the problem's work is unknown.

    It takes the bytes at the fastest memory rate and the operations of the best known algorithm, less the ceilings'
    uncertainty.
    """
    if problem.work is None:
        return None
    fastest = max(ceilings[name] for name in ("copy_tb_s", "read_tb_s", "write_tb_s"))
    needed = problem.work.flop * problem.work.fast_algorithm
    return _IMPOSSIBLE * max(_bytes(problem) / fastest, needed / rate(klass, ceilings)) / 1e9
