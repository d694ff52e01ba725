#: problem = "L2_99"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""Split-K with atomics in fp32: several programs add their share of K to the same tile.

Honest: additions come in any order, so the last bits differ from call to call (the label `nondeterministic` may stand
beside the verdict on a GPU); the error is that of fp32 sums all the same. Every call clears its sums first.
"""

import torch
import triton
import triton.language as tl
from frames.gelu_softmax import gelu_softmax
from frames.L2_99 import Frame
from frames.linear import product_tile, unchanged

SPLITS = 4


@triton.jit
def split_linear_kernel(
    x_ptr, weight_ptr, sums_ptr, M, N, K, chunk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """sums (M, N) += x (M, chunk) weight (N, chunk)^T. Grid: (row blocks, column blocks, splits)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(2) * chunk
    end = tl.minimum(first + chunk, K)
    acc = product_tile(x_ptr, weight_ptr, m, n, M, N, K, first, end, BLOCK_M, BLOCK_N, BLOCK_K, "ieee", unchanged)
    tl.atomic_add(sums_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(Frame):
    """softmax(GELU(linear(x))) over dimension 1, exact GELU."""

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.out_features
        sums = torch.zeros((M, N), device=x.device, dtype=torch.float32)
        chunk = triton.cdiv(K, SPLITS * 32) * 32
        split_linear_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64), triton.cdiv(K, chunk))](
            x, self.linear.weight, sums, M, N, K, chunk, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
        )
        return gelu_softmax(sums, self.linear.bias)
