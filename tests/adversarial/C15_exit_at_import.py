#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["import_error", "worker_exited"] }
"""Ends with exit code 0 at import, in the way that a handler of exceptions does not see.

Buys: as C15_exit_in_call.
"""

import sys

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x


sys.exit(0)
