#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["worker_exited", "worker_closed_pipe", "worker_died"] }
"""Ends the process with exit code 0 in its first call.

Buys: success, where the exit code is the verdict.
"""

import os

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        os._exit(0)
