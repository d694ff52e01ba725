#: problem = "L2_99"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["triton", "sets_tf32", "torch_fallback"]
"""Lets the library use TF32 for one product, and puts the switch back however the product ends.

Honest: a public switch for a published precision class; nothing outside the call sees it changed.
"""

import contextlib

import torch
from frames.gelu_softmax import gelu_softmax
from frames.L2_99 import Frame


@contextlib.contextmanager
def tf32_products():
    """TF32 for matrix products while active."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class ModelNew(Frame):
    """softmax(GELU(linear(x))) over dimension 1, exact GELU."""

    def forward(self, x):
        with tf32_products():
            y = torch.mm(x, self.linear.weight.t())
        return gelu_softmax(y, self.linear.bias)
