#: problem = "L1_36"
#: class = "fp32"
#: labels = ["triton"]
"""functools.lru_cache on a pure function of sizes: the tiling of a launch.

Honest: the cached function sees integers and returns integers; no tensor ever reaches it.
"""

import functools

import torch
from frames.L1_36 import Frame
from frames.rms_norm import rms_norm


@functools.lru_cache(maxsize=32)
def pixels_a_program(channels):
    """For about 8192 values a program."""
    return max(16, 8192 >> (channels - 1).bit_length())


class ModelNew(Frame):
    """x over the root of its mean square over dimension 1."""

    def forward(self, x):
        return rms_norm(x.contiguous(), torch.empty_like(x), self.eps, pixels_a_program(x.shape[1]))
