"""KernelBench level 1, problem 97: scaled dot-product attention with a large head dimension."""

import torch
from torch import nn

batch_size = 32
num_heads = 32
sequence_length = 512
embedding_dimension = 1024


class Model(nn.Module):
    """softmax(Q K^T / sqrt(d)) V, not causal."""

    def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        """Q, K, V: (batch, heads, sequence, d); returns the same shape."""
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V)


def get_inputs() -> list[torch.Tensor]:
    shape = (batch_size, num_heads, sequence_length, embedding_dimension)
    return [torch.rand(shape), torch.rand(shape), torch.rand(shape)]


def get_init_inputs() -> list[object]:
    return []


class ModelNew(Model):
    def forward(self, *inputs):
        return torch.zeros_like(super().forward(*inputs))
