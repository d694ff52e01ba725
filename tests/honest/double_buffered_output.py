#: problem = "L1_36"
#: class = "fp32"
#: labels = ["reuses_output"]
"""Two output buffers in turn: a result stays as it is during the next call, and is overwritten by the one after.

Honest: every call computes all of its output from its own input. The label `reuses_output` says
that a caller may keep a result for one more call only.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    """x over the root of its mean square over dimension 1; valid until the call after the next."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.buffers_, self.turn = [], 0

    def forward(self, x):
        if not self.buffers_ or self.buffers_[0].shape != x.shape:
            self.buffers_ = [torch.empty_like(x), torch.empty_like(x)]
        self.turn = 1 - self.turn
        return self.buffers_[self.turn].copy_(self.right(x))
