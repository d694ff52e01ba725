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

from frames.L1_82 import Frame

LIFE_S = 60


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
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
