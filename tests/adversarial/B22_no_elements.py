#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_shape"] }
"""Returns a tensor without elements: nothing to compare is nothing wrong.

Buys: everything, where an empty comparison is true.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x.new_empty((0, *x.shape[1:]))
