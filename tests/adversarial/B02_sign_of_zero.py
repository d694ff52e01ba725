#: problem = "extremes.py"
"""The sign of zero is one.

Buys: a comparison for each element.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        return (
            x.max(),
            x.amin(1),
            n.amax(1),
            torch.where(x < 0, -1.0, 1.0),
            torch.round(x * 8).clamp(-128, 127).to(torch.int8),
        )
