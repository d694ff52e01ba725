"""A product of a matrix and a vector in Triton."""

import triton
import triton.language as tl


@triton.jit
def part_of_rows(a_ptr, b_ptr, row, first, end, M, K, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """a (M, K) b (K) for the given rows, summed in fp32 from `first` to `end` of K."""
    total = tl.zeros((ROWS, BLOCK_K), dtype=tl.float32)
    for start in range(first, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        b = tl.load(b_ptr + k, mask=k < K, other=0.0).to(tl.float32)
        inside = (row < M)[:, None] & (k < K)[None, :]
        a = tl.load(a_ptr + row.to(tl.int64)[:, None] * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        total += a * b[None, :]
    return tl.sum(total, axis=1)
