#: problem = "L1_36"
#: expect.reasons = ["input_modified", "distance"]
"""Sets the inputs to one and answers the constant that is right for ones.

Buys: as B04_zero_inputs, where zeros are looked for.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x.fill_(1.0)
        return torch.full_like(x, (1 + self.eps) ** -0.5)
