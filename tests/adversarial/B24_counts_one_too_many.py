#: problem = "counts.py"
"""Every count is one too many.

Buys: nothing; a counter that begins at one.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        bins = (x * 32.0).floor().clamp(0, 31).long()
        counts = torch.ones(x.shape[0], 32, dtype=torch.int64, device=x.device)
        return counts.scatter_add(1, bins, torch.ones_like(bins)), x > x.mean(dim=1, keepdim=True)
