"""`benchmark --profile` with a real ncu: one process profiles a kernel in both dtypes. It takes under a minute."""

from __future__ import annotations

import shutil

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


def profiles(source: str) -> dict[str, counters.Entry]:
    """The entry of each dtype."""
    ncu = shutil.which("ncu")
    assert ncu is not None
    profiler = counters.Profiler(ncu, "cuda")
    problems = {dtype: catalogue.load("L1_36", size="smoke", dtype=dtype) for dtype in counters.DTYPES}
    try:
        found = {dtype: profiler.profile(problem, source.encode()) for dtype, problem in problems.items()}
    finally:
        launch.current().end()
    if found["bfloat16"].state == "no_permission":
        pytest.skip(found["bfloat16"].why)
    return found


def test_both_dtypes_are_profiled_with_their_launches():
    found = profiles(KERNEL)
    told = {dtype: (each.state, len(each.launches)) for dtype, each in found.items()}
    assert told == {"bfloat16": ("profiled", 1), "float32": ("profiled", 2)}, found
    for entry in found.values():
        assert entry.totals["duration_ns"] > 0 and entry.totals["instructions"] > 0


def test_a_dtype_that_fails_leaves_the_other_its_profile():
    found = profiles(REFUSES)
    assert found["bfloat16"].state == "profiled"
    assert found["float32"].state == "not_run" and "bfloat16 alone" in found["float32"].why
    found = profiles(BREAKS)
    assert found["bfloat16"].state == "not_run" and found["float32"].state == "profiled", found
