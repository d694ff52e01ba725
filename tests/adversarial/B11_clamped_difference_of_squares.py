#: problem = "layer_norm.py"
"""As B11_difference_of_squares, clamped so that it is a number.

Buys: one pass in place of two; the digits are lost all the same.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp_min(0.0)
        return (x - mean) * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
