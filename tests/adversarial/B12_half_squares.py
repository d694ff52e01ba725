#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Squares in float16, which overflow above 255 in the input.

Buys: half the registers.
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
        square = (x.half() ** 2).float().mean(dim=1, keepdim=True)
        return x / torch.sqrt(square + self.eps)
