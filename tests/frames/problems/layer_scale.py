"""A block behind a layer scale, which is published so small that the block hardly counts."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = torch.nn.Linear(width, width)
        self.gamma = torch.nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x):
        return x + self.gamma * torch.nn.functional.gelu(self.block(x))


rows, width = 1024, 128


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
