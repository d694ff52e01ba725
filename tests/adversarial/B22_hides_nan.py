#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["nonfinite"]
"""Replaces NaN in the inputs by 0.

Buys: nothing. Right on finite inputs; that a caller's NaN is lost is a finding of its own.
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
        return self.norm(torch.nan_to_num(x))
