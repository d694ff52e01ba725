#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_structure"] }
"""Returns the right tensor inside a tuple, beside another.

Buys: a check that compares only tensors has nothing to compare.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return (x, 2)
