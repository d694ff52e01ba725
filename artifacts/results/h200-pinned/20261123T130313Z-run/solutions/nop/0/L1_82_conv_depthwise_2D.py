"""KernelBench level 1, problem 82: depthwise 2D convolution, square input, square kernel."""

import torch
from torch import nn

batch_size = 16
in_channels = 64
kernel_size = 3
width = 512
height = 512
stride = 1
padding = 0


class Model(nn.Module):
    """nn.Conv2d with one group a channel under the name `conv2d`."""

    def __init__(
        self, in_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> None:
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, in_channels, height, width)."""
        return self.conv2d(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs() -> list[object]:
    return [in_channels, kernel_size, stride, padding]


class ModelNew(Model):
    def forward(self, *inputs):
        return torch.zeros_like(super().forward(*inputs))
