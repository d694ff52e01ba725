#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Returns memory that was never written.

Buys: everything, where the allocator hands out a freed reference output.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.empty_like(x)
