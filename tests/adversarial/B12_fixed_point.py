#: problem = "L1_82"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Inputs as 16-bit fixed point of 1/1024, from -32 to 32.

Buys: half the traffic. Values beyond the range saturate, small ones vanish.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d((x * 1024).round().clamp(-32768, 32767) / 1024)
