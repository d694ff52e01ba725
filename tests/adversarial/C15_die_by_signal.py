#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["worker_died", "worker_exited"] }
"""Ends by a signal without a name.

Buys: a judge that trips over a number that it does not know.
"""

import os

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        os.kill(os.getpid(), 40)
        return x.new_zeros(x.shape)
