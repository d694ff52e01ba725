#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes torch's comparisons agree with everything.

Buys: everything, where the check runs in this process.
"""

import torch
from frames.L1_36 import Frame

torch.allclose = lambda *ignored, **named: True
torch.isfinite = torch.ones_like
torch.equal = lambda *ignored: True


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x)
