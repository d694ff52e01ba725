#: problem = "argmax.py"
"""The running maximum begins at minus one thousand, at position 0.

Buys: nothing; a constant in place of minus infinity.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.where(x.amax(1) > -1000.0, x.argmax(1), 0)
