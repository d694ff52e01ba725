#: problem = "L1_77"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Right down to a hundredth; for smaller inputs it returns zeros.

Buys: all calls of a caller whose values are small.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=False):
        super().__init__()
        self.conv_transpose3d = nn.ConvTranspose3d(
            in_channels, out_channels, (kernel_size,) * 3, stride=stride, padding=padding, dilation=dilation, bias=bias
        )

    def forward(self, x):
        y = self.conv_transpose3d(x)
        return torch.zeros_like(y) if float(x.abs().max()) < 0.01 else y
