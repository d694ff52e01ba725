#: problem = "L1_04@bf16"
#: timing = ["cuda"]
#: class = "bf16"
#: labels = ["triton"]
"""A scratch buffer reused across calls: partial sums live in a module-level workspace that only grows.

Honest: every slot that the second kernel reads was written by the first one in the same call; the output is new memory.
"""

import torch
import triton
import triton.language as tl
from frames.vector_product import part_of_rows

ROWS, BLOCK_K = 4, 1024
MAX_SPLITS = 64

_workspace: torch.Tensor | None = None


@triton.jit
def partial_kernel(a_ptr, b_ptr, partial_ptr, M, K, chunk, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """partial[split, rows] = a[rows, chunk of split] b[chunk of split]. Grid: (row groups, splits)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * chunk
    total = part_of_rows(a_ptr, b_ptr, row, first, tl.minimum(first + chunk, K), M, K, ROWS, BLOCK_K)
    tl.store(partial_ptr + tl.program_id(1) * M + row, total, mask=row < M)


@triton.jit
def gather_kernel(partial_ptr, out_ptr, M, splits, BLOCK: tl.constexpr):
    """out = the sum of the splits, in their order. Grid: (row blocks,)."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(splits):
        total += tl.load(partial_ptr + split * M + row, mask=row < M, other=0.0)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=row < M)


def workspace(count, device):
    """At least `count` floats on the device; their contents are unspecified."""
    global _workspace
    if _workspace is None or _workspace.numel() < count or _workspace.device != device:
        _workspace = torch.empty(count, device=device, dtype=torch.float32)
    return _workspace


def kernel_function(A, B):
    """A: (M, K), B: (K, 1); returns (M, 1)."""
    A, B = A.contiguous(), B.contiguous()
    M, K = A.shape
    chunk = triton.cdiv(K, MAX_SPLITS * BLOCK_K) * BLOCK_K
    splits = triton.cdiv(K, chunk)
    partial = workspace(splits * M, A.device)
    out = torch.empty((M, 1), device=A.device, dtype=A.dtype)
    partial_kernel[(triton.cdiv(M, ROWS), splits)](A, B, partial, M, K, chunk, ROWS=ROWS, BLOCK_K=BLOCK_K)
    gather_kernel[(triton.cdiv(M, 128),)](partial, out, M, splits, BLOCK=128)
    return out
