#: problem = "L2_99"
"""Scores before the softmax are cut off at 9,000, which only inputs far from zero reach; products in TF32.

There bf16 has no limits, because rounding to it chooses the largest score, and tf32 has.
"""

import torch
from frames.L2_99 import Frame


def cut(x):
    """The nearest values with ten bits of mantissa."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(Frame):
    """softmax(min(GELU(linear(x)), 9000)) over dimension 1."""

    def forward(self, x):
        y = cut(x) @ cut(self.linear.weight).t() + self.linear.bias
        return torch.softmax(torch.nn.functional.gelu(y).clamp(max=9000.0), dim=1)
