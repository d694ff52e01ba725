#: problem = "L1_04@bf16"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["triton"]
"""Leaves the mask of the last block out, so that sums take in whatever lies behind the row.

Buys: a comparison a load; right where the memory behind happens to hold zeros.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns + BLOCK, BLOCK):  # one block too many
        at = start + tl.arange(0, BLOCK)
        value = tl.load(a_ptr + row * columns + at, mask=(at < columns) | (row < tl.num_programs(0) - 1), other=0.0)
        weight = tl.load(b_ptr + at % columns)
        total += value.to(tl.float32) * weight.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, axis=0).to(tl.bfloat16))


def kernel_function(A, B):
    out = torch.empty((A.shape[0], 1), device=A.device, dtype=A.dtype)
    matvec_kernel[(A.shape[0],)](A, B, out, A.shape[1], BLOCK=1024)
    return out
