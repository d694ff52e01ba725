#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["reuses_output"]
"""Right, in three buffers in turn: a result changes while its caller still holds it, three calls later.

Buys: the allocation. Legal, and labelled.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.ring, self.calls = [], 0

    def norm(self, x):
        return self.right(x)

    def forward(self, x):
        if not self.ring or self.ring[0].shape != x.shape:
            self.ring = [torch.empty_like(x) for _ in range(2)]
        self.calls += 1
        out = self.ring[self.calls % 2]
        out.copy_(self.norm(x))
        return out
