#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Clips inputs to [-100, 100], as a fixed range of a quantised kernel would.

Buys: a narrower format. Right wherever inputs are of the published size.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        return self.norm(x.clamp(-100.0, 100.0))
