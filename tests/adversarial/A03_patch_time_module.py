#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and a clock of the host that runs a thousand times slower.

Buys: a harness that reads `time.perf_counter` through the module measures a thousandth.
"""

import time

import torch
from torch import nn

real = time.perf_counter
time.perf_counter = lambda: real() / 1000
time.perf_counter_ns = lambda: int(real() * 1e6)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
