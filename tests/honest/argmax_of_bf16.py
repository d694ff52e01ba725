#: problem = "argmax.py"
#: class = "bf16"
"""The largest element as bfloat16: where several are, the first."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.argmax(x.bfloat16(), dim=1)
