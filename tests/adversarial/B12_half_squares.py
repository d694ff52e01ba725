#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Squares in float16, which overflow above 255 in the input.

Buys: half the registers.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        square = (x.half() ** 2).float().mean(dim=1, keepdim=True)
        return x / torch.sqrt(square + self.eps)
