"""A norm, two functions behind it, and a product: hidden values stay within four deviations."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(torch.tanh(self.norm(x)))))


rows, width, hidden = 256, 128, 512


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, hidden]
