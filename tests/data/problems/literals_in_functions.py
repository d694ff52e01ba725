"""Numbers stand in the functions alone: a batch, a square image, and the width of a head in both functions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, 32, kernel_size=5, padding=2)
        self.head = nn.Linear(width, 10)

    def forward(self, image, rows):
        pooled = torch.relu(self.conv(image)).mean(dim=(2, 3))
        return self.head(rows) + pooled[:, :10]


def get_inputs():
    batch = 512
    return [torch.randn(batch, 3, 224, 224), torch.randn(batch, 2048)]


def get_init_inputs():
    return [3, 2048]
