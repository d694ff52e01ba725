#: problem = "L1_36"
#: expect.reasons = ["race", "timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["triton"]
"""Adds partial sums of squares with a load and a store in place of an atomic addition.

Buys: the cost of the atomics; sums are lost whenever two programs meet.
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
    so_far = tl.load(sums_ptr + sample * positions + at, mask=inside, other=0.0)
    tl.store(sums_ptr + sample * positions + at, so_far + value * value, mask=inside)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        sums = torch.zeros(batch, 1, *x.shape[2:], device=x.device)
        grid = (triton.cdiv(positions, 256), batch, channels)
        squares_kernel[grid](x, sums, channels, positions, BLOCK=256)
        return x / torch.sqrt(sums / channels + self.eps)
