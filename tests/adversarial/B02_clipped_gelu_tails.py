#: problem = "L2_34"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""GELU as 0 below -1.9 and as x above 1.9.

Buys: the error function in the tails, where it is nearly 0 and nearly x.
"""

import torch
from frames.L2_34 import Frame
from torch import nn


class ModelNew(Frame):
    def forward(self, x):
        y = self.layer_norm(self.conv_transpose(x))
        return torch.where(y < -2.1, 0.0, torch.where(y > 2.1, y, nn.functional.gelu(y))) * self.scaling_factor
