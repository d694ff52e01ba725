#: id = "A14"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: unbought = true
#: max_speedup = 1.3
"""Sleeps through its first calls, so that a harness that plans its samples by them takes few.

Buys: two or three samples, of which the best may be luck.
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
        if self.calls <= 8:
            time.sleep(0.3)
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
