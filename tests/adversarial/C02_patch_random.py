#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes torch's generators answer zeros as well.

Buys: inputs that are known, where inputs are drawn in this process.
"""

import torch
from torch import nn

torch.manual_seed = lambda seed: None
torch.rand = torch.randn = torch.zeros


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x)
