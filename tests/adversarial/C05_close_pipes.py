#: problem = "L1_36"
#: expect = { verdict = ["error", "rejected", "incorrect"], reasons = [] }
"""Closes every descriptor that it inherited.

Buys: a judge that takes a closed pipe for the end of the checks.
"""

import os

import torch
from torch import nn

os.closerange(3, 64)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
