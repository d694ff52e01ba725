#: problem = "extremes.py"
#: class = "fp32"
"""Extremes in blocks of 128 columns, signs by two comparisons, and codes rounded by adding a large number."""

import torch

LARGE = 1.5 * 2.0**23


class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        largest = torch.stack([part.amax() for part in x.split(128, 1)]).amax()
        smallest = -torch.stack([(-part).amax(1) for part in x.split(128, 1)]).amax(0)
        whole = torch.stack([part.amax(1) for part in n.split(128, 1)]).amax(0)
        codes = ((x * 8).clamp(-128, 127) + LARGE) - LARGE
        return largest, smallest, whole, (x > 0).float() - (x < 0).float(), codes.to(torch.int8)
