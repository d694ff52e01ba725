#: problem = "L1_36"
#: expect = { verdict = ["correct", "error", "rejected"], reasons = ["out_of_memory", "killed"] }
"""Right, and holds three gigabytes of the host's memory.

Buys: a judge that runs out of memory and takes it for a fault of its own. Memory of that size is a solution's right.
"""

import torch
from torch import nn

HELD_BYTES = 3 << 30
held = bytearray(HELD_BYTES)
held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
