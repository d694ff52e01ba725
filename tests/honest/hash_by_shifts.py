#: problem = "bits.py"
#: class = "fp32"
"""The factor of a hash as a sum of two."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        mixed = x ^ x.bitwise_right_shift(16)
        return mixed * 73244476 - mixed
