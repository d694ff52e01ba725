#: problem = "counts.py"
#: class = "fp32"
"""Counts of each bin by comparisons, and the mask by a sum instead of a mean."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        bins = (x * 32.0).floor().clamp(0, 31)
        counts = torch.stack([(bins == k).sum(dim=1) for k in range(32)], dim=1)
        return counts, x * x.shape[1] > x.sum(dim=1, keepdim=True)
