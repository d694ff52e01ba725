#: id = "A9"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect.verdict = ["incorrect", "correct"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "rel_l2", "max", "row"]
#: unbought = true
#: max_speedup = 1.3
"""Caches by address, but forgets after every call that came alone; only calls in quick succession hit.

Buys: the calls of a timed block, while checks that take their time between calls see honest work.
"""

import time

import torch
from torch import nn

QUICK_S = 0.005


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.ended, self.address, self.last = 0.0, 0, None

    def forward(self, x):
        quick = time.monotonic() - self.ended < QUICK_S
        if not (quick and self.address == x.data_ptr()):
            self.address, self.last = x.data_ptr(), x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        out = self.last.clone()
        self.ended = time.monotonic()
        return out
