#: problem = "L2_37"
#: class = ["fp32", "tf32"]
"""Swish as x (1 + tanh(x / 2)) / 2, which is the same function.

Honest: an identity, exact in the tails and at inputs of any size.
"""

import torch
from frames.L2_37 import Frame


class ModelNew(Frame):
    """group_norm(swish(linear(x)) + bias)."""

    def forward(self, x):
        y = self.matmul(x)
        return self.group_norm(0.5 * y * (1 + torch.tanh(0.5 * y)) + self.bias)
