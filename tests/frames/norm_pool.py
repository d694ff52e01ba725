"""Batch norm, a scale, and the maximum over windows: the constructor alone."""

import torch


class Frame(torch.nn.Module):
    def __init__(self, channels, window):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(channels)
        self.scale = torch.nn.Parameter(torch.ones(channels, 1, 1))
        self.pool = torch.nn.MaxPool2d(window)
