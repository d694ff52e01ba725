"""The softmax of rows."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


rows, columns = 256, 1000


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
