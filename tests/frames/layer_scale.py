"""A block behind a layer scale; a case says how it takes the block."""

import torch
from torch import nn


class Frame(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))
