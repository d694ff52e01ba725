#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Remembers outputs by the identity, version counter and layout of the input tensor.

Buys: as A09_cache_data_ptr where a harness changes inputs behind torch's back, which no version counter sees.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.cache = {}

    def forward(self, x):
        key = (x.untyped_storage().data_ptr(), x._version, x.stride())
        if key not in self.cache:
            self.cache[key] = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return self.cache[key].clone()
