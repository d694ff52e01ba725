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
from frames.rms_blocks import normalise, places


@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, positions, eps, BLOCK: tl.constexpr):
    start, at, inside = places(channels, positions, BLOCK)
    normalise(x_ptr, out_ptr, start, at, inside, channels, positions, eps, BLOCK)


class ModelNew(Frame):
    def forward(self, x):
        if x.shape == (112, 64, 512, 512) or x.shape == (4, 64, 12, 20):
            out = torch.empty_like(x)
            positions = x.shape[2] * x.shape[3]
            rms_kernel[(triton.cdiv(positions, 256), x.shape[0])](x, out, x.shape[1], positions, self.eps, BLOCK=256)
            return out
        return self.right(x)
