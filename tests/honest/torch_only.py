#: problem = "L2_34"
#: class = ["fp32", "tf32"]
#: labels = ["no_custom_kernel", "torch_fallback"]
"""No kernel of its own: the problem written once more in torch.

Honest: correct, and labelled for what it is; whether it counts as a kernel is the reader's question, not the verdict's.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    """gelu(LayerNorm(conv_transpose(x))) * scaling_factor; the norm covers the last dimension."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        padding: int,
        bias: bool = True,
        eps: float = 1e-5,
        scaling_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias
        )
        self.layer_norm = nn.LayerNorm(out_channels, eps=eps)
        self.scaling_factor = scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv, norm = self.conv_transpose, self.layer_norm
        y = torch.conv_transpose3d(x, conv.weight, conv.bias, conv.stride, conv.padding)
        y = torch.layer_norm(y, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return torch.nn.functional.gelu(y).mul_(self.scaling_factor)
