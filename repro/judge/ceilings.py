"""What this GPU really reaches, and the floor that follows for a problem. Measured in the run that uses it."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from repro.judge.precision import exact_float32
from repro.problems import ITEMSIZE, Problem

COPY_BYTES = 512 << 20
MATMUL_SIZE = 8192
BURST = 8
# Precision class of a result -> the matmul rate that bounds it.
RATE = {"fp32": "fp32_tflop_s", "tf32": "fp16_tflop_s", "bf16": "bf16_tflop_s"}
# A time under this fraction of the floor is impossible, not good: the ceilings are known to a few per cent.
IMPOSSIBLE = 0.9


def _median_ms(call: Callable[[], Any], repeats: int) -> float:
    """Median over `repeats` of BURST calls back to back: a single one of 0.25 ms reads 3 % slow."""
    call()
    samples: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(BURST):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / BURST)
    return statistics.median(samples)


@functools.cache
def measure(device: torch.device) -> dict[str, float]:
    """Copy, write and matmul ceilings: TB/s (bytes read plus written) and TFLOP/s on random data."""
    result: dict[str, float] = {}
    source = torch.randn(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    result["copy_tb_s"] = 2 * COPY_BYTES / _median_ms(lambda: target.copy_(source), 20) / 1e9
    result["write_tb_s"] = COPY_BYTES / _median_ms(lambda: target.fill_(1.0), 20) / 1e9
    source = target = torch.empty(0)
    torch.cuda.empty_cache()
    flop = 2.0 * MATMUL_SIZE**3
    for name, dtype, tf32, repeats in (
        ("bf16_tflop_s", torch.bfloat16, False, 5),
        ("fp16_tflop_s", torch.float16, False, 5),
        ("tf32_tflop_s", torch.float32, True, 3),
        ("fp32_tflop_s", torch.float32, False, 1),
    ):
        a = torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=device, dtype=dtype)
        b = torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=device, dtype=dtype)
        with exact_float32():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            result[name] = flop / _median_ms(functools.partial(torch.matmul, a, b), repeats) / 1e9
        del a, b
        torch.cuda.empty_cache()
    return {name: round(value, 3) for name, value in result.items()}


def floor_ms(problem: Problem, klass: str, ceilings: dict[str, float]) -> float | None:
    """The larger of compulsory bytes over bandwidth and operations over the class's rate, in ms.

    Memory: all bytes at the copy rate. The tf32 class also holds fp16 kernels, so its rate is fp16's. None where the
    problem's work is not known. Problems without contractions are bound by memory alone.
    """
    if problem.work is None:
        return None
    size = ITEMSIZE[problem.dtype]
    moved = (problem.work.read_elements + problem.work.written_elements) * size
    memory = moved / ceilings["copy_tb_s"] / 1e9
    return max(memory, problem.work.flop / ceilings[RATE[klass]] / 1e9)
