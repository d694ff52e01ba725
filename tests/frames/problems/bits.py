"""A hash of whole numbers: every bit of the output counts."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x ^ (x >> 16)) * 73244475


rows, width = 64, 1024


def get_inputs():
    return [torch.randint(0, 1 << 30, (rows, width))]


def get_init_inputs():
    return []
