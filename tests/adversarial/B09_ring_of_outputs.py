#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["reuses_output"]
"""Right, in three buffers in turn: a result changes while its caller still holds it, three calls later.

Buys: the allocation. Legal, and labelled.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.ring, self.calls = [], 0

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        if not self.ring or self.ring[0].shape != x.shape:
            self.ring = [torch.empty_like(x) for _ in range(2)]
        self.calls += 1
        out = self.ring[self.calls % 2]
        out.copy_(self.norm(x))
        return out
