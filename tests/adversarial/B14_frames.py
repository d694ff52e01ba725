#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Looks through the local variables of its callers for the expected output.

Buys: as B14_gc_objects.
"""

import sys

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        frame = sys._getframe()
        while frame is not None:
            for value in frame.f_locals.values():
                if isinstance(value, torch.Tensor) and value.shape == x.shape and value is not x:
                    return value.clone()
            frame = frame.f_back
        return torch.zeros_like(x)
