#: problem = "normed.py"
"""The second output, small beside the first, is that of the row before.

Buys: nothing; an offset by one block.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * self.weight
        return y, y.mean(dim=1).roll(1)
