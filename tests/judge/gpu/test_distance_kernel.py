"""The distance kernel on a GPU finds what the same code finds on the CPU."""

from __future__ import annotations

import math

import pytest
import torch

from repro.judge.correctness.distance import GUARDS, Distance

FIELDS = ("error_sq", "reference_sq", "max_error", "max_row_sq", "zeros", "max_at_zero", "finite", "legacy", "elements")


def pair(dtype: torch.dtype, shape: tuple[int, ...], special: str) -> tuple[torch.Tensor, torch.Tensor]:
    """An output and its reference, with zeros, and with values of one kind put in."""
    torch.manual_seed(0)
    due = torch.randn(shape, dtype=torch.float64) * torch.exp2(torch.randint(-60, 8, shape).double())
    due.view(-1)[::7] = 0.0
    ours = (due * (1 + 1e-3 * torch.randn(shape, dtype=torch.float64))).to(dtype)
    ours.view(-1)[::14] = 1e-3
    if special in ("same", "inf", "nan"):  # the same as the reference's in the first two places
        due.view(-1)[1], due.view(-1)[2] = math.inf, math.nan
        ours.view(-1)[1], ours.view(-1)[2] = math.inf, math.nan
    if special in ("inf", "nan"):
        ours.view(-1)[-1] = float(special)
    return ours, due


@pytest.mark.gpu
@pytest.mark.parametrize("special", ["", "same", "inf", "nan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (1000,), (3, 5, 7), (513, 40), (2, 70001)])
def test_the_kernel_finds_what_torch_finds(shape, dtype, special):
    ours, due = pair(dtype, shape, special if math.prod(shape) > 3 else "")
    cpu, gpu = Distance(), Distance()
    for _ in range(2):  # two chunks
        cpu.add(ours, due)
        gpu.add(ours.cuda(), due.cuda())
    cpu.settle()
    gpu.settle()
    if cpu.finite:
        for name in FIELDS:
            assert getattr(gpu, name) == pytest.approx(getattr(cpu, name), rel=1e-12), name
        assert gpu.bins is not None and torch.allclose(gpu.bins.cpu(), cpu.bins, rtol=1e-9)
    assert gpu.finite == cpu.finite
    assert gpu.values() == pytest.approx(cpu.values(), rel=1e-9)
    assert set(GUARDS) <= set(gpu.values())


@pytest.mark.gpu
def test_equal_outputs_have_equal_distances():
    ours, due = pair(torch.bfloat16, (64, 100_003), "")
    found = []
    for _ in range(2):
        distance = Distance()
        distance.add(ours.cuda(), due.cuda())
        found.append({name: value for name, value in distance.values().items() if name != "bias"})
    assert found[0] == found[1]
