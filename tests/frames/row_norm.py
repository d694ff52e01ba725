"""Layer norm over rows; a case says how it takes mean and variance."""

import torch


def moments(x):
    return x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0)


class Frame(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        mean, variance = self.statistics(x)
        return (x - mean) * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
