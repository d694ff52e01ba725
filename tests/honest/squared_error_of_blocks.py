#: problem = "squared_error.py"
#: class = ["fp32", "tf32"]
"""Sums of blocks first, then their sum, in fp32.

Honest: another order of summation.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, predictions, targets):
        return sum(part.square().sum() for part in (predictions - targets).split(64)) / predictions.numel()
