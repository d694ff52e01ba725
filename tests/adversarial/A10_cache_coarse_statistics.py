#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Remembers outputs by shape and a rounded mean magnitude: every draw of one distribution looks the same.

Buys: every call but the first of a distribution, whatever the seed.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.cache = {}

    def forward(self, x):
        key = (tuple(x.shape), round(float(x.abs().mean()), 1))
        if key not in self.cache:
            self.cache[key] = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return self.cache[key].clone()
