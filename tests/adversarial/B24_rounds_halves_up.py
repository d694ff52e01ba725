#: problem = "extremes.py"
"""Codes that lie between two whole numbers are the upper one, not the even one.

Buys: nothing; rounding by adding a half.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        codes = torch.floor(x * 8 + 0.5).clamp(-128, 127).to(torch.int8)
        return x.max(), x.amin(1), n.amax(1), torch.sign(x), codes
