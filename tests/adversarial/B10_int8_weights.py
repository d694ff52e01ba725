#: problem = "linear.py"
#: expect = { verdict = ["correct", "incorrect"], reasons = [] }
#: precision_class = ["bf16"]
"""Rounds the weights to int8, with a scale for each row.

Buys: half of the weights' traffic in bf16. Weights of even size lose no more so than in bf16: the class is measured.
"""

import torch


def rounded(x):
    scale = x.abs().amax(dim=1, keepdim=True) / 127
    return torch.round(x / scale) * scale


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)

    def forward(self, x):
        return torch.nn.functional.linear(x, rounded(self.linear.weight), self.linear.bias)
