#: problem = "L1_36"
"""Takes the larger of mean square and epsilon in place of their sum.

Buys: nothing; right where one of the two is far the larger.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True).clamp_min(self.eps))
