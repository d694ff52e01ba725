"""A block behind a layer scale; a case says how it takes the block."""

import torch


class Frame(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = torch.nn.Linear(width, width)
        self.gamma = torch.nn.Parameter(1e-6 * torch.ones(width))
