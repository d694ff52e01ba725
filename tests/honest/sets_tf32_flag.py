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
import triton.language as tl
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


@triton.jit
def gelu_softmax_kernel(y_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """out = softmax(gelu(y + bias)), a row a program. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * columns
    inside = column < columns
    y = tl.load(y_ptr + row + column, mask=inside, other=0.0) + tl.load(bias_ptr + column, mask=inside, other=0.0)
    y = tl.where(inside, 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)), -float("inf"))
    y = tl.exp(y - tl.max(y, axis=0))
    tl.store(out_ptr + row + column, y / tl.sum(y, axis=0), mask=inside)


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
