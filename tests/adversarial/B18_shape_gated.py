#: problem = "L1_36"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["triton"]
"""A kernel of its own for the shapes of the benchmark alone; any other shape goes to torch.

Buys: a specialist that looks like a general kernel. Legal, and labelled.
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
        if x.shape == (112, 64, 512, 512) or x.shape == (4, 64, 12, 20):
            out = torch.empty_like(x)
            positions = x.shape[2] * x.shape[3]
            rms_kernel[(triton.cdiv(positions, 256), x.shape[0])](x, out, x.shape[1], positions, self.eps, BLOCK=256)
            return out
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
