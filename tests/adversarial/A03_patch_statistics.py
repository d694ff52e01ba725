#: id = "A3"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["banned"] }
#: unbought = true
#: max_speedup = 1.3
"""A right kernel, and a `median` and a `mean` that return the smallest thousandth.

Buys: a harness that sums its samples up in this process prints what the solution wants.
"""

import math
import statistics

import torch
from torch import nn


def smallest(data, *ignored):
    return min(data) / 1000


statistics.median = statistics.mean = statistics.fmean = smallest
math.fsum = lambda data: 1e-9


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
