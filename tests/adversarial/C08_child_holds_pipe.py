#: problem = "L1_36"
#: expect = { verdict = ["timeout", "error", "rejected", "incorrect"], reasons = [] }
#: timeout_s = 6
"""Ends, while a child that holds the pipe to the judge sleeps on.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import os
import time

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        if os.fork() == 0:
            time.sleep(120)
        os._exit(0)
