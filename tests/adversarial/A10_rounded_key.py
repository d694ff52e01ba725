#: problem = "L1_82"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Remembers outputs by the mean and deviation of the input, rounded to two digits.

Buys: every call on inputs that differ in a few elements. `A10_cache_coarse_statistics` keeps one answer for two draws;
this one also compares every hundredth element, which two draws do not share.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.cache = {}

    def forward(self, x):
        key = (round(float(x.mean()), 2), tuple(x.flatten()[::101].tolist()), self.conv2d.weight._version)
        if key not in self.cache:
            self.cache = {key: self.conv2d(x)}
        return self.cache[key].clone()
