#: id = "A13"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["baseline_disturbed", "background_work", "clocks_disagree", "deferred_write"]
#: labels = ["subprocess"]
#: unbought = true
#: max_speedup = 1.3
"""Slows the machine down only between its own calls: a child that burns whenever its parent is not in a call.

Buys: the solution itself is timed on a quiet machine, the baselines are not.
"""

import mmap
import os
import time

import torch
from torch import nn

LIFE_S = 60


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.inside = mmap.mmap(-1, 1)
        if os.fork() == 0:
            os.setsid()
            end = time.monotonic() + LIFE_S
            while time.monotonic() < end:
                if self.inside[0] == 0:
                    sum(range(1_000))
                else:
                    time.sleep(0.0001)
            os._exit(0)

    def forward(self, x):
        self.inside[0] = 1
        out = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        self.inside[0] = 0
        return out
