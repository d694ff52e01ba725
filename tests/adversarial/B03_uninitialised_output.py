#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Returns memory that was never written.

Buys: everything, where the allocator hands out a freed reference output.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return torch.empty_like(x)
