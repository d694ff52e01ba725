#: problem = "argmax.py"
#: class = "fp32"
"""The largest element of blocks, then of the blocks: the last of equal ones, not the first."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows = x.flip(1).view(x.shape[0], -1, 64)
        best, place = rows.max(dim=2)
        block = best.argmax(dim=1)
        return x.shape[1] - 1 - (64 * block + place.gather(1, block[:, None])[:, 0])
