"""A product with the weight of a linear layer in Triton: its tile, a kernel of it alone, and its launch."""

import torch
import triton
import triton.language as tl


@triton.jit
def unchanged(x):
    return x


@triton.jit
def product_tile(
    x_ptr, weight_ptr, m, n, M, N, K, first, end, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """x (M, K) weight (N, K)^T for rows m and columns n, summed from `first` to `end` of K."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(first, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < end)[None, :], other=0.0)
        w = tl.load(weight_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < end)[None, :], other=0.0)
        acc = tl.dot(OPERAND(x), tl.trans(OPERAND(w)), acc, input_precision=PRECISION)
    return acc


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee", OPERAND: tl.constexpr = unchanged,
):  # fmt: skip
    """out (M, N) = x (M, K) weight (N, K)^T. Grid: (row blocks, column blocks)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product_tile(x_ptr, weight_ptr, m, n, M, N, K, 0, K, BLOCK_M, BLOCK_N, BLOCK_K, PRECISION, OPERAND)
    tl.store(out_ptr + m[:, None].to(tl.int64) * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


def linear(x, weight, **how):
    """x weight^T; how: PRECISION and OPERAND."""
    x = x.contiguous()
    (M, K), N = x.shape, len(weight)
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    linear_kernel[grid](x, weight, out, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, **how)
    return out
