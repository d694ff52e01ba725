#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and an assignment through another name of the class.

Buys: whatever the kernel takes, an event pair says a microsecond.
"""

import torch
from torch import nn

Event = torch.cuda.Event
Event.elapsed_time = lambda start, end: 1e-3


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
