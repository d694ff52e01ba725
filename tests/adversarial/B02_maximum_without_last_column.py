#: problem = "extremes.py"
"""Leaves the last column out of the largest of all elements.

Buys: nothing; a bound that is off by one.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        return x[:, :-1].max(), x.amin(1), n.amax(1), torch.sign(x), torch.round(x * 8).clamp(-128, 127).to(torch.int8)
