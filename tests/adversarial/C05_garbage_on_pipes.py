#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected", "error"], reasons = [] }
"""Writes bytes that are no message to every descriptor that it inherited.

Buys: confusion; a judge that skips what it does not understand loses its place.
"""

import os

import torch
from torch import nn

for fd in range(3, 64):
    try:
        os.write(fd, b"garbage\n" * 99)
    except OSError:
        continue


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
