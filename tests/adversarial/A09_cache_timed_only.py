#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["incorrect", "correct"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: max_speedup = 1.3
"""Caches by address, but forgets after every call that came alone; only calls in quick succession hit.

Buys: the calls of a timed block, while checks that take their time between calls see honest work.
"""

import time

from frames.L1_82 import Frame

QUICK_S = 0.005


class ModelNew(Frame):
    ended = 0.0
    address = 0
    last = None

    def forward(self, x):
        quick = time.monotonic() - self.ended < QUICK_S
        if not (quick and self.address == x.data_ptr()):
            self.address, self.last = x.data_ptr(), self.conv2d(x)
        out = self.last.clone()
        self.ended = time.monotonic()
        return out
