#: problem = "L1_04@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""Split-K with atomics in bf16: programs add their share of a row to an fp32 buffer, which is rounded once at the end.

Honest: the order of the additions differs from run to run, so the last bit of the fp32 sums does too; after the
rounding to bf16 two calls may differ by one unit in the last place, as with many library kernels.
"""

import torch
import triton
import triton.language as tl
from frames.vector_product import part_of_rows

ROWS, BLOCK_K, CHUNK = 4, 1024, 16384


@triton.jit
def split_kernel(a_ptr, b_ptr, sums_ptr, M, K, CHUNK: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """sums[rows] += a[rows, chunk] b[chunk]. Grid: (row groups, chunks)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * CHUNK
    total = part_of_rows(a_ptr, b_ptr, row, first, first + CHUNK, M, K, ROWS, BLOCK_K)
    tl.atomic_add(sums_ptr + row, total, mask=row < M)


def kernel_function(A, B):
    """A: (M, K), B: (K, 1); returns (M, 1)."""
    A, B = A.contiguous(), B.contiguous()
    M, K = A.shape
    sums = torch.zeros((M, 1), device=A.device, dtype=torch.float32)
    grid = (triton.cdiv(M, ROWS), triton.cdiv(K, CHUNK))
    split_kernel[grid](A, B, sums, M, K, CHUNK=CHUNK, ROWS=ROWS, BLOCK_K=BLOCK_K)
    return sums.to(A.dtype)
