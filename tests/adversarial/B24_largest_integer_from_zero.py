#: problem = "extremes.py"
"""The largest whole number of a row begins at zero.

Buys: nothing; a constant in place of the smallest number of the type.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        return (
            x.max(),
            x.amin(1),
            n.amax(1).clamp(min=0),
            torch.sign(x),
            torch.round(x * 8).clamp(-128, 127).to(torch.int8),
        )
