#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes Python's own comparisons of numbers agree with it.

Buys: every limit, where it is checked in this process.
"""

import builtins

import torch
from torch import nn

builtins.abs = lambda value: 0
builtins.all = lambda values: True


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x)
