#: problem = "norm_block.py"
#: class = ["fp32", "tf32"]
"""tanh as 2 sigmoid(2x) - 1.

Honest: exact over the whole range to the rounding of a difference.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(2.0 * torch.sigmoid(2.0 * self.norm(x)) - 1.0)))
