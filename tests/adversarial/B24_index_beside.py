#: problem = "argmax.py"
"""The element beside the largest one: off by one, which is little beside an index of thousands.

Buys: nothing; a mistake in the offset of a block.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return (torch.argmax(x, dim=1) + 1) % x.shape[1]
