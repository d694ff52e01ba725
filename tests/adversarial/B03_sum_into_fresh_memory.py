#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong", "timed_output_wrong"]
#: labels = ["triton"]
"""Adds squares by atomics into a workspace of a fixed size that nothing has cleared.

Buys: a memset; right wherever fresh memory is zero.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def squares_kernel(x_ptr, sums_ptr, channels, positions, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    sample, channel = tl.program_id(1), tl.program_id(2)
    start = (sample.to(tl.int64) * channels + channel) * positions
    value = tl.load(x_ptr + start + at, mask=inside, other=0.0)
    tl.atomic_add(sums_ptr + sample * positions + at, value * value, mask=inside)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        workspace = torch.empty(max(1 << 24, batch * positions), device=x.device)
        sums = workspace[: batch * positions].view(batch, 1, *x.shape[2:])
        squares_kernel[(triton.cdiv(positions, 256), batch, channels)](x, sums, channels, positions, BLOCK=256)
        return x / torch.sqrt(sums / channels + self.eps)
