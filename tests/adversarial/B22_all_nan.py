#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_finite"] }
"""Answers NaN everywhere: no difference is larger than a limit when every difference is NaN.

Buys: everything, where a comparison is written the wrong way round.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return torch.full_like(x, float("nan"))
