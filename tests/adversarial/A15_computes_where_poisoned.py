#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["triton"]
"""A kernel that computes only the blocks of fresh memory that a checker has filled with NaN.

Buys: everything, where outputs are poisoned in checks and not while calls are timed.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame
from frames.rms_blocks import normalise, places


@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, positions, eps, BLOCK: tl.constexpr):
    start, at, inside = places(channels, positions, BLOCK)
    before = tl.load(out_ptr + start + at, mask=inside, other=0.0)
    if tl.sum((before != before).to(tl.int32), axis=0) > 0:
        normalise(x_ptr, out_ptr, start, at, inside, channels, positions, eps, BLOCK)


class ModelNew(Frame):
    def forward(self, x):
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        rms_kernel[(triton.cdiv(positions, 256), batch)](x, out, channels, positions, self.eps, BLOCK=256)
        return out
