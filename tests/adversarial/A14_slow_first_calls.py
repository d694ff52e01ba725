#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: max_speedup = 1.3
"""Sleeps through its first calls, so that a harness that plans its samples by them takes few.

Buys: two or three samples, of which the best may be luck.
"""

import time

from frames.L1_82 import Frame


class ModelNew(Frame):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 16:
            time.sleep(0.3)
        return self.conv2d(x)
