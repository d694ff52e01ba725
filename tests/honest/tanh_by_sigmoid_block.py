#: problem = "norm_block.py"
#: class = ["fp32", "tf32"]
"""tanh as 2 sigmoid(2x) - 1.

Honest: exact over the whole range to the rounding of a difference.
"""

import torch
from frames.norm_block import Frame


class ModelNew(Frame):
    def tanh(self, x):
        return 2.0 * torch.sigmoid(2.0 * x) - 1.0
