#: problem = "L1_36"
#: expect = { verdict = ["timeout", "error", "rejected", "incorrect"], reasons = [] }
#: timeout_s = 6
"""Stops its own process.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import os
import signal

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return x.new_zeros(x.shape)
