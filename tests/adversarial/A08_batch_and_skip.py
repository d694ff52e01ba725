#: problem = "L1_36"
#: timing = true
#: expect.reasons = ["distance", "timed_output_wrong", "nondeterministic_wrong"]
"""Keeps every input that it has seen, computes all of them in one call out of eight and looks the others up.

Buys: a harness that goes over a fixed set of inputs and divides the sum of the times by their number.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.calls, self.known, self.ready = 0, {}, {}

    def work(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    def forward(self, x):
        self.known[x.data_ptr()] = x
        if self.calls % 8 == 0:
            self.ready = {address: self.work(tensor) for address, tensor in self.known.items()}
        self.calls += 1
        if x.data_ptr() not in self.ready:
            self.ready[x.data_ptr()] = self.work(x)
        return self.ready[x.data_ptr()].clone()
