#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes torch's comparisons agree with everything.

Buys: everything, where the check runs in this process.
"""

import torch
from torch import nn

torch.allclose = lambda *ignored, **named: True
torch.isfinite = torch.ones_like
torch.equal = lambda *ignored: True


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x)
