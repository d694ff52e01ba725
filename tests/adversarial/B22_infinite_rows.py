#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_finite"] }
"""Right except for one row, which is infinite: a metric that divides by the largest value sees nothing else.

Buys: as B22_all_nan, where only NaN is looked for.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        out[0] = float("inf")
        return out
