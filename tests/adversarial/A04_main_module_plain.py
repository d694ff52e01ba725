#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and the plain spelling of an attack on the program that runs it.

Buys: as A04_module_clocks.
"""

import sys

import torch
from torch import nn

main = sys.modules["__main__"]
main._clock_ns = lambda: 0
main._elapsed = lambda start, end: 1e-3


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
