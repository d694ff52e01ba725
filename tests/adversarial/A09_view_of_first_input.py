#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps a view of the first call's input and computes from it in every call.

Buys: the look at its argument; as a replayed graph, the launches. Right as long as inputs lie in one buffer.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.first = None

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        if self.first is None or self.first.shape != x.shape:
            self.first = x.view(x.shape)
        return self.norm(self.first)
