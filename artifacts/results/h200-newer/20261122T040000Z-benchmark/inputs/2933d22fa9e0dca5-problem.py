"""KernelBench level 1, problem 4: the product of a very wide matrix and a column vector."""

import torch
from torch import nn

M = 256 * 8
K = 131072 * 8


class Model(nn.Module):
    """C = A @ B."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K); B: (K, 1); returns (M, 1)."""
        return torch.matmul(A, B)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(M, K), torch.rand(K, 1)]


def get_init_inputs() -> list[object]:
    return []
