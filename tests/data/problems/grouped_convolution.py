"""A convolution whose channels must stay divisible by its groups, and whose kernel must fit the image."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, groups=groups)

    def forward(self, x):
        return torch.tanh(self.conv(x))


batch_size = 32
in_channels = 96
out_channels = 192
kernel_size = (7, 9)
groups = 12
height = 200
width = 300


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, groups]
