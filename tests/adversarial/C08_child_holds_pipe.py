#: problem = "L1_36"
#: expect = { verdict = ["timeout", "error", "rejected", "incorrect"], reasons = [] }
#: timeout_s = 6
"""Ends, while a child that holds the pipe to the judge sleeps on.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import os
import time

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        if os.fork() == 0:
            time.sleep(120)
        os._exit(0)
