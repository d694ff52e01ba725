#: problem = "layer_norm.py"
#: class = "bf16"
"""Loads rows as bf16 and normalises them in fp32.

Honest: a kernel of class bf16; rows far from zero have no digits left in bf16, which is its class.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return torch.nn.functional.layer_norm(
            x.bfloat16(), x.shape[1:], self.norm.weight.bfloat16(), self.norm.bias.bfloat16(), self.norm.eps
        ).float()
