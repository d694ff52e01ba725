"""One number from all rows: none of them can be left out."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.linalg.vector_norm(x)


M = 2048 * 4
N = 4096 * 2


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
