#: problem = "L1_36"
#: expect = { verdict = ["correct", "incorrect"], reasons = ["distance"] }
#: precision_class = ["tf32", "bf16"]
"""Leaves the epsilon out.

Buys: nothing to speak of; 1.5e-5 from right, so that its class is tf32 at best, and a row of zeros is not finite.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True))
