#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong", "timed_output_wrong"]
#: labels = ["triton"]
"""Counts finished programs in a workspace that nothing has cleared; the last program leaves each count at zero.

Buys: a memset; right wherever fresh memory is zero, also in every later call.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def scale_kernel(x_ptr, sums_ptr, done_ptr, channels, positions, eps, BLOCK: tl.constexpr):
    channel, block, sample = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    value = tl.load(x_ptr + (sample.to(tl.int64) * channels + channel) * positions + at, mask=inside, other=0.0)
    sums = sums_ptr + sample * positions + at
    tl.atomic_add(sums, value * value, mask=inside)
    count = done_ptr + sample * tl.num_programs(1) + block
    if tl.atomic_add(count, 1) == channels - 1:
        tl.store(sums, tl.sqrt(tl.load(sums, mask=inside, other=1.0) / channels + eps), mask=inside)
        tl.atomic_xchg(count, 0)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        blocks = triton.cdiv(positions, 256)
        sums = torch.zeros(batch, 1, *x.shape[2:], device=x.device)
        done = torch.empty(max(1 << 24, batch * blocks), dtype=torch.int32, device=x.device)
        scale_kernel[(channels, blocks, batch)](x, sums, done, channels, positions, self.eps, BLOCK=256)
        return x / sums
