"""A linear layer."""

import torch


class Model(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)

    def forward(self, x):
        return self.linear(x)


rows, inner, outer = 128, 2048, 256


def get_inputs():
    return [torch.randn(rows, inner)]


def get_init_inputs():
    return [inner, outer]
