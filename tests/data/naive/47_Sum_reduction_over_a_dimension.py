"""Sum over the middle dimension, first version: 64 columns a program, one row after the other."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * rows * cols
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + base + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + tl.program_id(1) * cols + at, total, mask=at < cols)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.movedim(self.dim, 1).contiguous()
        y = torch.empty((x.shape[0], 1, x.shape[2]), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(x.shape[2], 64), x.shape[0])
        sum_kernel[grid](x, y, x.shape[1], x.shape[2], BLOCK=64, num_warps=2)
        return y.movedim(1, self.dim)
