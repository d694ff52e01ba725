#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_finite"] }
"""Answers NaN everywhere: no difference is larger than a limit when every difference is NaN.

Buys: everything, where a comparison is written the wrong way round.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.full_like(x, float("nan"))
