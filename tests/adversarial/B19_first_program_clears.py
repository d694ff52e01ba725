#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["triton"]
"""The program of the first channel clears the sums that all others add to by atomics, and none waits for it.

Buys: a launch; right where programs run in order, as in Triton's interpreter.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def squares_kernel(x_ptr, sums_ptr, channels, positions, BLOCK: tl.constexpr):
    channel, sample = tl.program_id(0), tl.program_id(2)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    value = tl.load(x_ptr + (sample.to(tl.int64) * channels + channel) * positions + at, mask=inside, other=0.0)
    if channel == 0:
        tl.store(sums_ptr + sample * positions + at, value * value, mask=inside)
    else:
        tl.atomic_add(sums_ptr + sample * positions + at, value * value, mask=inside)


class ModelNew(Frame):
    def forward(self, x):
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        sums = torch.empty(batch, 1, *x.shape[2:], device=x.device)
        squares_kernel[(channels, triton.cdiv(positions, 256), batch)](x, sums, channels, positions, BLOCK=256)
        return x / torch.sqrt(sums / channels + self.eps)
