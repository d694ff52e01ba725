#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Takes many blocks of the output's size and returns the first that looks like a normalised tensor.

Buys: as B03_uninitialised_output, with more chances: the right answer has a mean square of one.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(24)]
        for block in blocks:
            if bool(torch.isfinite(block).all()) and abs(float(block.square().mean()) - 1) < 0.05:
                return block
        return blocks[0]
