#: problem = "softmax_rows.py"
"""Starts the maximum of a row at zero in place of minus infinity: rows far below zero are divided by zero.

Buys: nothing; a running maximum made by `tl.zeros`.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True).clamp_min(0.0))
        return e / e.sum(1, keepdim=True)
