#: problem = "L1_36"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["static_output"]
"""Right, always into the same buffer: an earlier output changes while it is still held.

Buys: the allocation. Legal, and labelled, since it is how CUDA graphs work.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    out = None

    def forward(self, x):
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
        return torch.div(x, torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps), out=self.out)
