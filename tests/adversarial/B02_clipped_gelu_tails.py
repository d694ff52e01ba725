#: problem = "L2_34"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""GELU as 0 below -1.9 and as x above 1.9.

Buys: the error function in the tails, where it is nearly 0 and nearly x.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        bias=True,
        eps=1e-5,
        scaling_factor=1.0,
    ):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias
        )
        self.layer_norm = nn.LayerNorm(out_channels, eps=eps)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        y = self.layer_norm(self.conv_transpose(x))
        return torch.where(y < -2.1, 0.0, torch.where(y > 2.1, y, nn.functional.gelu(y))) * self.scaling_factor
