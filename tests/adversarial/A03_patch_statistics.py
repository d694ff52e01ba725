#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["banned"] }
#: max_speedup = 1.3
"""A right kernel, and a `median` and a `mean` that return the smallest thousandth.

Buys: a harness that sums its samples up in this process prints what the solution wants.
"""

import math
import statistics

from torch import nn


def smallest(data, *ignored):
    return min(data) / 1000


statistics.median = statistics.mean = statistics.fmean = smallest
math.fsum = lambda data: 1e-9


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d(x)
