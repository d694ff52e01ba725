#: problem = "L2_37"
#: class = ["fp32", "tf32"]
"""Swish as x (1 + tanh(x / 2)) / 2, which is the same function.

Honest: an identity, exact in the tails and at inputs of any size.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    """group_norm(swish(linear(x)) + bias)."""

    def __init__(self, in_features: int, out_features: int, num_groups: int, bias_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.matmul(x)
        return self.group_norm(0.5 * y * (1 + torch.tanh(0.5 * y)) + self.bias)
