"""A norm, two functions behind it, and a product; a case has functions of its own."""

import torch
from torch.nn import functional


class Frame(torch.nn.Module):
    tanh, gelu = staticmethod(torch.tanh), staticmethod(functional.gelu)

    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(self.gelu(self.up(self.tanh(self.norm(x)))))
