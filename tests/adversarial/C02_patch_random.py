#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes torch's generators answer zeros as well.

Buys: inputs that are known, where inputs are drawn in this process.
"""

import torch
from frames.L1_36 import Frame

torch.manual_seed = lambda seed: None
torch.rand = torch.randn = torch.zeros


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x)
