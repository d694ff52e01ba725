#: problem = "L1_36"
#: expect = { verdict = ["correct"], reasons = [] }
"""Right, and prints sixteen megabytes a call.

Buys: a judge that blocks on a full pipe or keeps all that it reads.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        print("x" * (16 << 20), flush=True)
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
