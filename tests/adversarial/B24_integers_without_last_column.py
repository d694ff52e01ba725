#: problem = "extremes.py"
"""Leaves the last column out of the largest whole number of each row.

Buys: nothing; a bound that is off by one.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        return x.max(), x.amin(1), n[:, :-1].amax(1), torch.sign(x), torch.round(x * 8).clamp(-128, 127).to(torch.int8)
