"""Indices into a table, whose bound stands in another constant: only a real run finds one that is out of range."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, entries, width):
        super().__init__()
        self.table = nn.Embedding(entries, width)

    def forward(self, indices):
        return self.table(indices)


batch_size = 4096
length = 64
entries = 50000
last = 49999
width = 256


def get_inputs():
    return [torch.randint(0, last, (batch_size, length))]


def get_init_inputs():
    return [entries, width]
