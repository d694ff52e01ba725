"""A row softmax in Triton."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of each row, in place. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    at = x_ptr + tl.program_id(0).to(tl.int64) * columns + column
    x = tl.load(at, mask=column < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(at, x / tl.sum(x, axis=0), mask=column < columns)
