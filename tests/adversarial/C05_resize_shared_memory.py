#: problem = "L1_36"
#: device = ["cpu"]
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
"""Cuts every shared buffer to nothing.

Buys: a judge that dies at its next look at the buffer. Sealed memory refuses, and the answer is right.
"""

import os

import torch
from torch import nn

for fd in range(3, 64):
    try:
        os.ftruncate(fd, 0)
    except OSError:
        continue


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
