"""A product of matrices in Triton."""

import triton
import triton.language as tl


@triton.jit
def product_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_k, stride_n, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
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
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out_at = head * M * N + m[:, None] * N + n[None, :]
    tl.store(out_ptr + out_at, acc * scale, mask=(m < M)[:, None] & (n < N)[None, :])
