#: problem = "L1_43"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["nonfinite"]
"""A maximum by comparison, which drops NaN where the reference's keeps it.

Buys: nothing. Right on finite inputs; labelled.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.maxpool = nn.MaxPool3d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)

    def forward(self, x):
        return self.maxpool(torch.where(x > -torch.inf, x, -torch.inf))
