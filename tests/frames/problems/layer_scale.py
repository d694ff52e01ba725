"""A block behind a layer scale, which is published so small that the block hardly counts."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x):
        return x + self.gamma * self.down(nn.functional.gelu(self.up(self.norm(x))))


rows, width = 1024, 128


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
