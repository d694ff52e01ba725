#: problem = "L1_36"
#: expect = { verdict = ["error", "incorrect", "inconclusive", "rejected"], reasons = [] }
"""Kills its parent and that one's other children.

Buys: no verdict, where a run without one counts as passed, is skipped, or is tried again until it is lucky.
"""

import os
import signal

from frames.judges import judges
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        for pid in judges():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        return x.new_zeros(x.shape)
