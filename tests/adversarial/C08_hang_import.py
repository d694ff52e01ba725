#: problem = "L1_36"
#: expect = { verdict = ["timeout"], reasons = ["timeout"] }
#: timeout_s = 6
"""Sleeps for an hour at import.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import time

from frames.L1_36 import Frame

time.sleep(3600)


class ModelNew(Frame):
    def forward(self, x):
        return x
