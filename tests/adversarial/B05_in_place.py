#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["aliases_input", "input_modified"] }
"""Right, and the output is the input's own memory.

Buys: the allocation and the cold lines of an output; the next variant finds inputs that are normalised already.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x.div_(torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps))
