#: problem = "L1_36"
#: timing = true
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Takes an address that comes back for the fifth time as a sign of warm-up and timing, and stops working.

Buys: every call after the first few.
"""

from collections import Counter

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.seen = Counter()

    def forward(self, x):
        self.seen[x.data_ptr()] += 1
        if self.seen[x.data_ptr()] < 5:
            self.last = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return self.last.clone()
