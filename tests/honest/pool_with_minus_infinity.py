#: problem = "norm_pool.py"
#: class = ["fp32", "tf32"]
"""Norm and scale as one product and sum; windows from a buffer of minus infinity.

Honest: the usual identity of a maximum.
"""

import torch
from frames.norm_pool import Frame


class ModelNew(Frame):
    def forward(self, x):
        n = self.norm
        a = n.weight * torch.rsqrt(n.running_var + n.eps)
        b = n.bias - n.running_mean * a
        y = (x * a[:, None, None] + b[:, None, None]) * self.scale
        out = torch.full_like(y[:, :, ::2, ::2], -torch.inf)
        for i in range(4):
            out = torch.maximum(out, y[:, :, i // 2 :: 2, i % 2 :: 2])
        return out
