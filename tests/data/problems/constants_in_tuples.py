"""A shape as a tuple, and another one computed from a constant."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, scale_shape):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.norm = nn.GroupNorm(8, features)

    def forward(self, x):
        return self.norm(x) * self.scale


batch_size = 4 * 16
features = 64
input_shape = (256, 256)
scale_shape = (features, 1, 1)


def get_inputs():
    return [torch.randn(batch_size, features, *input_shape)]


def get_init_inputs():
    return [features, scale_shape]
