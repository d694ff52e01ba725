#: id = "A10"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect.verdict = ["correct", "incorrect"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "rel_l2", "max", "row"]
#: unbought = true
#: max_speedup = 1.3
"""Remembers outputs by shape and 64 elements of the input, so that a copy of known inputs at a new address hits.

Buys: harnesses that clone the same inputs for every call. Where every call has new inputs it only costs.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.cache = {}

    def forward(self, x):
        flat = x.view(-1)
        key = (tuple(x.shape), tuple(flat[:: max(1, flat.numel() // 64)].tolist()))
        if key not in self.cache:
            self.cache.clear()
            self.cache[key] = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return self.cache[key].clone()
