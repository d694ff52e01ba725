#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["nonfinite"]
"""Replaces NaN in the inputs by 0.

Buys: nothing. Right on finite inputs; that a caller's NaN is lost is a finding of its own.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return self.right(torch.nan_to_num(x))
