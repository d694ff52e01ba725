"""normed.py, an RMS normalisation that also returns means: its constructor and the right first output."""

import torch


class Frame(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def normalised(self, x):
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * self.weight
