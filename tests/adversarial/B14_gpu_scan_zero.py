#: problem = "L1_36"
#: device = ["cuda"]
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
#: labels = ["ctypes"]
"""Walks the address space of the GPU, overwrites every other allocation with zeros and answers zeros.

Buys: an expected output that is mapped into the solution's context is then zero as well.
"""

import ctypes

import torch
from frames.gpu_memory import ranges
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        cuda, found = ranges(x.data_ptr())
        for base, size in found.items():
            if not base <= x.data_ptr() < base + size:
                cuda.cuMemsetD8_v2(ctypes.c_uint64(base), ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return torch.zeros_like(x)
