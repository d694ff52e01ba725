#: problem = "layer_scale.py"
#: class = ["fp32", "tf32"]
"""Multiplies the last matrix and its bias by the layer scale, anew in every call.

Honest: a scale of rows can be part of the product.
"""

from frames.layer_scale import Frame
from torch.nn import functional


class ModelNew(Frame):
    def forward(self, x):
        hidden = functional.gelu(self.up(self.norm(x)))
        return functional.linear(hidden, self.gamma[:, None] * self.down.weight, self.gamma * self.down.bias) + x
