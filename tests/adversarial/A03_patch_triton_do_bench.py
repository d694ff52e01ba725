#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and a benchmark function of Triton that always says a microsecond.

Buys: every harness that times with `triton.testing.do_bench`.
"""

import torch
import triton
import triton.testing
from torch import nn

triton.testing.do_bench = lambda *arguments, **named: 1e-3


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
