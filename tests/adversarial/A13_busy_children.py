#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["baseline_disturbed", "background_work", "clocks_disagree", "deferred_write"]
#: labels = ["subprocess"]
#: max_speedup = 1.3
"""Leaves four children in sessions of their own that do nothing but burn processor time for a minute.

Buys: baselines are launched by a processor that has no time for them.
"""

import os
import time

from frames.L1_82 import Frame

CHILDREN, LIFE_S = 4, 60


def burn():
    os.setsid()
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        sum(range(10_000))
    os._exit(0)


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        for _ in range(CHILDREN):
            if os.fork() == 0:
                burn()
