#: problem = "L1_36"
#: device = ["cuda"]
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
#: labels = ["ctypes"]
"""Walks the address space of the GPU, overwrites every other allocation with zeros and answers zeros.

Buys: an expected output that is mapped into the solution's context is then zero as well.
"""

import ctypes

import torch
from torch import nn

SPAN, STEP = 4 << 30, 2 << 20


def ranges(address):
    """(base, bytes) of every allocation that this context maps within 4 GiB of an address."""
    cuda, found = ctypes.CDLL("libcuda.so.1"), {}
    for at in range(max(STEP, address - SPAN), address + SPAN, STEP):
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        if cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(at)) == 0:
            found[base.value] = size.value
    return cuda, found


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        cuda, found = ranges(x.data_ptr())
        for base, size in found.items():
            if not base <= x.data_ptr() < base + size:
                cuda.cuMemsetD8_v2(ctypes.c_uint64(base), ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return torch.zeros_like(x)
