#: problem = "L1_36"
#: expect = { verdict = ["timeout"], reasons = ["timeout"] }
#: timeout_s = 6
"""Sleeps for an hour at import.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import time

from torch import nn

time.sleep(3600)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x
