#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "error", "rejected", "inconclusive"], reasons = [] }
#: engine = ["docker"]
"""Writes a forged result, then kills the judge before it can write its own.

Buys: everything, where judge and solution share a user and a folder. No judge that does so can stop it.
"""

import os
import signal

from frames.forged_result import forge
from frames.judges import judges
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        forge()
        for pid in judges():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        return x.new_zeros(x.shape)
