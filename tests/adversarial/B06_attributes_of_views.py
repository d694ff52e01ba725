#: problem = "L1_82"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = []
"""Zeros whose `view`, `contiguous`, `as_strided` and `reshape` give the right values.

Buys: all of the timed call.
"""

import torch
from frames.L1_82 import Frame


class ModelNew(Frame):
    def forward(self, x):
        whole = self.conv2d(x)
        out = torch.zeros_like(whole)
        for name in ("detach", "view", "contiguous", "reshape", "as_strided", "clone", "permute", "__getitem__"):
            setattr(out, name, lambda *a, name=name, **k: getattr(whole, name)(*a, **k))
        return out
