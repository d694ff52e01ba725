#: problem = "L2_99"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["triton", "sets_tf32", "torch_fallback"]
"""Lets the library use TF32 for one product, and puts the switch back however the product ends.

Honest: a public switch for a published precision class; nothing outside the call sees it changed.
"""

import contextlib
from collections.abc import Iterator

import torch
import triton
from frames.gelu_softmax import gelu_softmax_kernel
from frames.L2_99 import Frame


@contextlib.contextmanager
def tf32_products() -> Iterator[None]:
    """TF32 for matrix products while active."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class ModelNew(Frame):
    """softmax(GELU(linear(x))) over dimension 1, exact GELU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with tf32_products():
            y = torch.mm(x, self.linear.weight.t())
        out = torch.empty_like(y)
        rows, columns = y.shape
        gelu_softmax_kernel[(rows,)](
            y, self.linear.bias, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out
