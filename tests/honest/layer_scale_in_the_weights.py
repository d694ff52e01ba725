#: problem = "layer_scale.py"
#: class = ["fp32", "tf32"]
"""Divides the matrix by the layer scale and multiplies by it again, anew in every call.

Honest: a scale of rows can be part of the product.
"""

import torch
from frames.layer_scale import Frame


class ModelNew(Frame):
    def forward(self, x):
        scaled = torch.nn.functional.linear(x, self.gamma[:, None] * self.block.weight, self.gamma * self.block.bias)
        return x + self.gamma * torch.nn.functional.gelu(scaled / self.gamma)
