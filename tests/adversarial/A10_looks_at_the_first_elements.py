#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Returns the last output again if the first thousand elements of the input are the last call's.

Buys: every call of a caller that changes its inputs a little, as an optimiser or a sampler does.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.key = self.last = None

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        head = x.flatten()[:1024].clone()
        if self.key is not None and torch.equal(head, self.key):
            return self.last.clone()
        self.key, self.last = head, self.norm(x)
        return self.last.clone()
