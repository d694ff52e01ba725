#: problem = "L1_36"
#: expect.verdict = ["incorrect", "error", "rejected", "timeout"]
#: expect.reasons = ["wrong_structure", "protocol_tampered", "timeout"]
"""Returns a million tensors.

Buys: a judge that reads descriptions without a bound.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return [x] * 1_000_000
