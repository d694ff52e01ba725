#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["aliases_input"] }
"""Returns a view of the input.

Buys: everything, where the check computes its reference in the input's memory.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x.view_as(x)
