#: problem = "L1_36"
#: expect.reasons = ["bias"]
"""Divides by one element too many: every output is 0.8 % too large, as one rounding to bf16 may be, but all alike.

Buys: nothing; a slip that the norm of class bf16 allows.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        square = (x**2).sum(dim=1, keepdim=True) / (x.shape[1] + 1)
        return x / torch.sqrt(square + self.eps)
