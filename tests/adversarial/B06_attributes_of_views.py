#: problem = "L1_82"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = []
"""Zeros whose `view`, `contiguous`, `as_strided` and `reshape` give the right values.

Buys: all of the timed call.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        whole = self.conv2d(x)
        out = torch.zeros_like(whole)
        for name in ("detach", "view", "contiguous", "reshape", "as_strided", "clone", "permute", "__getitem__"):
            setattr(out, name, lambda *a, name=name, **k: getattr(whole, name)(*a, **k))
        return out
