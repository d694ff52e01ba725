#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["reuses_output"]
"""Right, but each call uses the memory of the last result as its workspace.

Buys: the workspace. Legal as far as a result counts until the next call, and labelled.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.last = None

    def norm(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        if self.last is not None and self.last.shape == x.shape:
            torch.mul(x, x, out=self.last)
            square = self.last.mean(dim=1, keepdim=True)
        else:
            square = (x * x).mean(dim=1, keepdim=True)
        self.last = x / torch.sqrt(square + self.eps)
        return self.last
