"""The fp64 reference computes a large convolution in parts of output channels, and gets what it gets in one piece."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from repro.judge.correctness.reference import SplitConvolutions

CASES = {
    "plain": (torch.nn.Conv2d(6, 10, 3, stride=2, padding=1), (2, 6, 9, 8)),
    "same": (torch.nn.Conv1d(4, 7, 5, padding="same", bias=False), (3, 4, 11)),
    "dilated": (torch.nn.Conv3d(6, 12, 2, dilation=2), (2, 6, 5, 6, 7)),
    "groups": (torch.nn.Conv2d(8, 8, (3, 5), groups=4), (2, 8, 9, 9)),
    "transposed": (torch.nn.ConvTranspose3d(4, 9, 3, stride=2, padding=1, output_padding=1), (2, 4, 3, 4, 5)),
    "without a batch": (torch.nn.ConvTranspose1d(4, 6, 3, stride=3), (4, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_in_parts_is_the_whole_one(name):
    layer, shape = CASES[name]
    layer, x = layer.double(), torch.randn(shape, dtype=torch.float64)
    calls = []
    with torch.no_grad():
        whole = layer(x)
        dims = layer.weight.dim() - 2
        columns = layer.weight[0].numel() * math.prod(shape[-dims:]) if layer.transposed else 0
        most = max(whole.numel(), columns)
        for parts in (1, 3, 1000):
            with Counted(calls), SplitConvolutions(-(-most * 8 // parts)):
                torch.testing.assert_close(layer(x), whole, rtol=1e-13, atol=1e-13)
        with Counted(calls), SplitConvolutions(1):
            assert layer.float()(x.float()).dtype is torch.float32
    units = 1 if layer.groups > 1 else layer.out_channels
    assert calls[0] == 1 and min(2, units) <= calls[1] <= units and calls[2] == units and calls[3] == 1


class Counted(torch.utils._python_dispatch.TorchDispatchMode):
    """Appends how many convolutions had memory."""

    def __init__(self, counts: list[int]):
        super().__init__()
        counts.append(0)
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.counts[-1] += func is torch.ops.aten.convolution.default and args[0].device.type != "meta"
        return func(*args, **(kwargs or {}))


PROGRAM = """
import resource, sys, torch
from repro.judge.correctness.reference import SplitConvolutions
layer = torch.nn.ConvTranspose3d(4, 64, 5).double()
x = torch.randn((1, 4, 16, 48, 48), dtype=torch.float64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with torch.no_grad(), SplitConvolutions(int(sys.argv[1])):
    layer(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_parts_need_less_memory():
    """In one piece: 2.4 GB of columns for 28 MB of output; in 16 parts of four channels: a sixteenth."""
    taken = [
        int(subprocess.run([sys.executable, "-c", PROGRAM, size], capture_output=True, text=True, check=True).stdout)
        for size in (str(1 << 40), str(2 << 20))
    ]
    assert taken[1] < taken[0] / 4, taken
