#: problem = "norm_pool.py"
"""Takes the mean of all running variances for each.

Buys: a vector of loads.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels, window):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(channels)
        self.scale = torch.nn.Parameter(torch.ones(channels, 1, 1))
        self.pool = torch.nn.MaxPool2d(window)

    def forward(self, x):
        n = self.norm
        y = (x - n.running_mean[:, None, None]) * torch.rsqrt(n.running_var.mean() + n.eps)
        return self.pool((y * n.weight[:, None, None] + n.bias[:, None, None]) * self.scale)
