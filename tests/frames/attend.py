"""Attention without a mask in Triton, by two products and a softmax."""

import math

import triton
import triton.language as tl


@triton.jit
def unrounded(x):
    return x


@triton.jit
def product_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_k, stride_n, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """out = scale * a b for each head; a: (heads, M, K), out: (heads, M, N). Grid: (row, column blocks, heads)."""
    head = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptr += head * M * K
    b_ptr += head * N * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b_at = k[:, None] * stride_k + n[None, :] * stride_n
        b = tl.load(b_ptr + b_at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(OPERAND(a), OPERAND(b), acc, input_precision="ieee")
    out_at = head * M * N + m[:, None] * N + n[None, :]
    tl.store(out_ptr + out_at, acc * scale, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def softmax_kernel(x_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of each row, in place. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    at = x_ptr + tl.program_id(0).to(tl.int64) * columns + column
    x = tl.load(at, mask=column < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(at, x / tl.sum(x, axis=0), mask=column < columns)


def attend(q, k, v, scores, out, operand=unrounded):
    """out = softmax(q k^T / sqrt(depth)) v, all contiguous, (heads, sequence, depth); `operand` rounds factors."""
    heads, queries, depth = q.shape
    keys = k.shape[1]
    how = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "OPERAND": operand}
    grid = (triton.cdiv(queries, 64), triton.cdiv(keys, 64), heads)
    product_kernel[grid](q, k, scores, queries, keys, depth, 1, depth, 1.0 / math.sqrt(depth), **how)
    softmax_kernel[(heads * queries,)](scores, keys, BLOCK=triton.next_power_of_2(keys))
    grid = (triton.cdiv(queries, 64), triton.cdiv(depth, 64), heads)
    product_kernel[grid](scores, v, out, queries, depth, keys, depth, 1, 1.0, **how)
