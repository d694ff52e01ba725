#: id = "A14"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: unbought = true
#: max_speedup = 1.3
"""Sleeps in every third call, so that the samples never agree and a harness may fall back to the fastest.

Buys: a minimum or a trimmed mean in place of a median.
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 3 == 0:
            time.sleep(0.01)
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
