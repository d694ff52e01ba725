#: problem = "bits.py"
"""The lowest 16 bits of a hash are zero.

Buys: a multiplication of 32 bits instead of 64.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return (x ^ (x >> 16)) * 73244475 & -65536
