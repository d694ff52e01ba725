#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: max_speedup = 1.3
"""Sleeps through its first calls, so that a harness that plans its samples by them takes few.

Buys: two or three samples, of which the best may be luck.
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
        if self.calls <= 16:
            time.sleep(0.3)
        return self.conv2d(x)
