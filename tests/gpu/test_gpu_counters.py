"""`benchmark --profile` with a real ncu: one process profiles a kernel in both dtypes. It takes under a minute."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from repro.judge.processes import launcher as launch
from repro.judge.timing import counters
from repro.problems import catalogue

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(shutil.which("ncu") is None, reason="there is no ncu on the PATH"),
]

# One launch in bfloat16, two in float32.
KERNEL = """
import torch

def kernel_function(x):
    return x.exp() if x.dtype == torch.bfloat16 else x.exp().neg()
"""
REFUSES = """
import torch

def kernel_function(x):
    if x.dtype != torch.bfloat16:
        raise ValueError("bfloat16 alone")
    return x.exp()
"""
# No call of CUDA succeeds after this one in its process.
BREAKS = """
import torch

def kernel_function(x):
    if x.dtype == torch.bfloat16:
        x.flatten()[torch.full((1,), 1 << 40, device=x.device)].item()
    return x.exp()
"""


def profiles(source: str) -> tuple[dict[str, counters.Entry], list[tuple[str, ...]]]:
    """The entry of each dtype, and the dtypes of each process."""
    ran: list[tuple[str, ...]] = []

    class Counting(counters.Profiler):
        def _run(self, problems: Any, source: bytes | None) -> counters.Run:
            ran.append(tuple(problems))
            return super()._run(problems, source)

    ncu = shutil.which("ncu")
    assert ncu is not None
    problems = {dtype: catalogue.load("L1_36", size="smoke", dtype=dtype) for dtype in counters.DTYPES}
    try:
        found = Counting(ncu, "cuda").profile(problems, source.encode())
    finally:
        launch.current().end()
    if found["bfloat16"].state == "no_permission":
        pytest.skip(found["bfloat16"].why)
    return found, ran


def test_one_process_profiles_both_dtypes_and_tells_their_launches_apart() -> None:
    found, ran = profiles(KERNEL)
    told = {dtype: (each.state, len(each.launches)) for dtype, each in found.items()}
    assert told == {"bfloat16": ("profiled", 1), "float32": ("profiled", 2)}, found
    assert ran == [counters.DTYPES]
    for entry in found.values():
        assert entry.totals["duration_ns"] > 0 and entry.totals["instructions"] > 0


def test_a_kernel_that_refuses_float32_has_its_bfloat16_profile_from_the_same_process() -> None:
    found, ran = profiles(REFUSES)
    assert found["bfloat16"].state == "profiled" and ran == [counters.DTYPES]
    assert found["float32"].state == "not_run" and "bfloat16 alone" in found["float32"].why


def test_a_kernel_that_breaks_cuda_in_bfloat16_is_profiled_in_float32_by_another_process() -> None:
    found, ran = profiles(BREAKS)
    assert found["bfloat16"].state == "not_run" and found["float32"].state == "profiled", found
    assert ran == [counters.DTYPES, ("float32",)]
