#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_dense", "no_storage"] }
"""Right for one channel, and expanded over the others.

Buys: all writes but those of one channel.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        y = x[:, :1] / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return y.expand_as(x)
