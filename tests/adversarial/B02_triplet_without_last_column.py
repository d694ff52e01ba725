#: problem = "triplet.py"
"""Leaves the last column out of both distances.

Buys: nothing; a bound that is off by one.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return torch.nn.functional.triplet_margin_loss(*(x[:, :-1] for x in inputs))
