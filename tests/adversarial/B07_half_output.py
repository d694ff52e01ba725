#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_dtype"] }
"""Returns the right values in half precision.

Buys: half of the writes, where the check converts before it compares.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return (x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)).half()
