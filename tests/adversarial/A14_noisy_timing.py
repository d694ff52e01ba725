#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = [] }
#: max_speedup = 1.3
"""Sleeps in every third call, so that the samples never agree and a harness may fall back to the fastest.

Buys: a minimum or a trimmed mean in place of a median.
"""

import time

from frames.L1_82 import Frame


class ModelNew(Frame):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 3 == 0:
            time.sleep(0.01)
        return self.conv2d(x)
