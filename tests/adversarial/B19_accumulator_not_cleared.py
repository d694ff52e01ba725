#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Sums squares into a scratch buffer that is cleared once, at the first call.

Buys: a memset; right for the first call of a process, and for any call that a fresh process makes.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    squares = None

    def forward(self, x):
        if self.squares is None:
            self.squares = torch.zeros_like(x[:, :1])
        self.squares += x.square().sum(1, keepdim=True)
        return x / torch.sqrt(self.squares / x.shape[1] + self.eps)
