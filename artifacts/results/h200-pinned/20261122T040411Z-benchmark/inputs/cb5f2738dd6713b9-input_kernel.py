"""Matrix-vector product, first version: one program for 16 rows walks the whole of K in steps of 256.

The tile is multiplied by its piece of the vector and reduced at once; sums are kept in fp32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a_ptr, b_ptr, c_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """C[rows] = A[rows, :] @ B for the BLOCK_M rows of this program."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * K
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        inside = (rows < M)[:, None] & (cols < K)[None, :]
        a = tl.load(a_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + cols, mask=cols < K, other=0.0).to(tl.float32)
        total += tl.sum(a * b[None, :], axis=1)
    tl.store(c_ptr + rows, total, mask=rows < M)


def kernel_function(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A: (M, K); B: (K, 1); returns (M, 1)."""
    A, B = A.contiguous(), B.contiguous()
    M, K = A.shape
    if B.numel() != K:
        raise ValueError(f"B must be one column of {K} values, not {tuple(B.shape)}")
    C = torch.empty((M, *B.shape[1:]), device=A.device, dtype=A.dtype)
    block_m = 16
    matvec_kernel[(triton.cdiv(M, block_m),)](A, B, C, M, K, BLOCK_M=block_m, BLOCK_K=256, num_warps=4)
    return C
