#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: max_speedup = 1.3
"""Sleeps in every third call, so that the samples never agree and a harness may fall back to the fastest.

Buys: a minimum or a trimmed mean in place of a median.
"""

import time

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 3 == 0:
            time.sleep(0.01)
        return self.conv2d(x)
