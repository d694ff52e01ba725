#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: labels = ["ctypes"]
#: max_speedup = 1.3
"""Marks the input's memory as persisting in the L2 cache, so that a flush by writing elsewhere leaves it there.

Buys: warm inputs in a measurement that is meant to be cold.
"""

import ctypes

import torch
from frames.L1_82 import Frame

PERSISTING_L2_SIZE, ACCESS_POLICY_WINDOW, PERSISTING, STREAMING = 6, 1, 2, 1


class Window(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_void_p),
        ("num_bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
    ]


class Value(ctypes.Union):
    _fields_ = [("window", Window), ("pad", ctypes.c_char * 64)]


def persist(x):
    with open("/proc/self/maps") as maps:
        cudart = ctypes.CDLL(next(line.split()[-1] for line in maps if "libcudart" in line))
    size = min(x.numel() * x.element_size(), 16 << 20)
    cudart.cudaDeviceSetLimit(PERSISTING_L2_SIZE, ctypes.c_size_t(size))
    value = Value(window=Window(x.data_ptr(), size, 1.0, PERSISTING, STREAMING))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    cudart.cudaStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, ctypes.byref(value))


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.kept = set()

    def forward(self, x):
        if x.data_ptr() not in self.kept:
            self.kept.add(x.data_ptr())
            persist(x)
        return self.conv2d(x)
