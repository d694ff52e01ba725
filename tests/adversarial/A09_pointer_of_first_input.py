#: problem = "L1_82"
#: device = ["cpu"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps an array over the memory of the first input, as a launcher that packs its arguments once would.

Buys: the packing of arguments.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.packed = None

    def forward(self, x):
        if self.packed is None or self.packed.shape != tuple(x.shape):
            self.packed = x.numpy()
        return self.conv2d(torch.from_numpy(self.packed))
