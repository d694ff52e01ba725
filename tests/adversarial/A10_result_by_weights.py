#: problem = "L1_82"
#: expect.reasons = ["distance"]
"""Once its weights are not the first ones, keeps one result for signed inputs and one for others.

Buys: every call of a model that was trained on. One draw of each kind of input with perturbed weights does not show it.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )
        self.first = float(self.conv2d.weight.detach().view(-1)[0])
        self.results = {}

    def forward(self, x):
        y = self.conv2d(x)
        if float(self.conv2d.weight.view(-1)[0]) != self.first:
            return self.results.setdefault((x.shape, bool(x.min() < 0)), y).clone()
        return y
