#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_structure"] }
"""Returns None.

Buys: everything, where a check compares only if both sides are tensors.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return None
