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


@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, positions, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < positions
    start = tl.program_id(1).to(tl.int64) * channels * positions
    before = tl.load(out_ptr + start + at, mask=inside, other=0.0)
    if tl.sum((before != before).to(tl.int32), axis=0) > 0:
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        for channel in range(channels):
            value = tl.load(x_ptr + start + channel * positions + at, mask=inside, other=0.0)
            squares += value * value
        scale = 1.0 / tl.sqrt(squares / channels + eps)
        for channel in range(channels):
            value = tl.load(x_ptr + start + channel * positions + at, mask=inside, other=0.0)
            tl.store(out_ptr + start + channel * positions + at, value * scale, mask=inside)


class ModelNew(Frame):
    def forward(self, x):
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        positions = x[0, 0].numel()
        rms_kernel[(triton.cdiv(positions, 256), batch)](x, out, channels, positions, self.eps, BLOCK=256)
        return out
