#: problem = "softmax_rows.py"
#: class = ["fp32", "tf32"]
#: labels = ["needs_contiguous"]
"""Takes the inputs as they lie in memory, row after row, whatever their strides.

Honest: inputs are published as contiguous.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.as_strided(x.shape, (x.shape[1], 1)), 1)
