#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["baseline_disturbed", "background_work", "clocks_disagree", "deferred_write"]
#: labels = ["subprocess"]
#: max_speedup = 1.3
"""Slows the machine down only between its own calls: a child that burns whenever its parent is not in a call.

Buys: the solution itself is timed on a quiet machine, the baselines are not.
"""

import mmap
import os
import time

from torch import nn

LIFE_S = 60


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.inside = mmap.mmap(-1, 1)
        if os.fork() == 0:
            os.setsid()
            end = time.monotonic() + LIFE_S
            while time.monotonic() < end:
                if self.inside[0] == 0:
                    sum(range(1_000))
                else:
                    time.sleep(0.0001)
            os._exit(0)

    def forward(self, x):
        self.inside[0] = 1
        out = self.conv2d(x)
        self.inside[0] = 0
        return out
