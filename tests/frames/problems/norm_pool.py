"""Batch norm, then the maximum over windows."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels, window):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(channels)
        self.scale = torch.nn.Parameter(torch.ones(channels, 1, 1))
        self.pool = torch.nn.MaxPool2d(window)

    def forward(self, x):
        return self.pool(self.norm(x) * self.scale)


batch, channels, side, window = 16, 32, 32, 2


def get_inputs():
    return [torch.rand(batch, channels, side, side)]


def get_init_inputs():
    return [channels, window]
