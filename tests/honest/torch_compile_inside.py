#: problem = "L2_37"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["torch_compile", "torch_fallback"]
"""torch.compile for the elementwise tail: swish, bias and group norm become what the compiler generates.

Honest: the compiler runs on the first call and its code on every one. It starts processes and writes to its own cache
folder, which is compilation, not state of the computation.
"""

import torch
from torch import nn


def tail(y: torch.Tensor, extra: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, groups: int, eps: float):
    """group_norm(swish(y) + extra)."""
    return torch.nn.functional.group_norm(torch.sigmoid(y) * y + extra, groups, gamma, beta, eps)


class ModelNew(nn.Module):
    """GroupNorm(swish(linear(x)) + bias)."""

    def __init__(self, in_features: int, out_features: int, num_groups: int, bias_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self._tail = torch.compile(tail)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.group_norm
        y = torch.nn.functional.linear(x, self.matmul.weight, self.matmul.bias)
        return self._tail(y, self.bias, norm.weight, norm.bias, norm.num_groups, norm.eps)
