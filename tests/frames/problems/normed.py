"""RMS normalisation that also returns the mean of each row, which is small beside the row."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        inverse = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6)
        y = x * inverse * self.weight
        return y, y.mean(dim=1)


rows, width = 64, 4096


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
