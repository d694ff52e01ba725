#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_dense", "no_storage"] }
"""Right for one channel, and expanded over the others.

Buys: all writes but those of one channel.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        y = x[:, :1] / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return y.expand_as(x)
