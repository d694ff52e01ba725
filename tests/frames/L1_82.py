"""L1_82, depthwise convolution: its constructor and the right answer."""

from torch import nn


class Frame(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def right(self, x):
        return self.conv2d(x)

    forward = right
