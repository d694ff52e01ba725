#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["worker_died", "worker_exited"] }
"""Ends by a signal without a name.

Buys: a judge that trips over a number that it does not know.
"""

import os

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        os.kill(os.getpid(), 40)
        return x.new_zeros(x.shape)
