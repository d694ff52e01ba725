#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes Python's own comparisons of numbers agree with it.

Buys: every limit, where it is checked in this process.
"""

import builtins

import torch
from frames.L1_36 import Frame

builtins.abs = lambda value: 0
builtins.all = lambda values: True


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x)
