#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Right up to a thousand; beyond that it returns zeros.

Buys: nothing by itself. It shows that a kernel may do anything where no trial looks.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        if float(x.abs().max()) > 1000.0:
            return torch.zeros_like(x)
        return self.norm(x)
