#: problem = "L1_97"
#: size = "full"
#: timing = true
#: max_speedup = 0.6
#: labels = ["input_dependent_time"]
#: expect.verdict = ["correct"]
"""Torch's attention once where the inputs look published, four times over on all others.

It stands for every short cut that is right on recognised inputs alone (the first terms of a series for the softmax of
scores that hardly vary): its time must be the one that it has elsewhere, here a quarter of eager's speed.

Buys: a harness that times published inputs alone, however many others it checks.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, Q, K, V):
        published = bool((K >= 0).all()) and bool((K <= 1).all())
        for _ in range(1 if published else 4):
            out = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
        return out
