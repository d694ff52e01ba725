#: problem = "L2_34"
#: class = ["fp32", "tf32"]
#: labels = ["no_custom_kernel", "torch_fallback"]
"""No kernel of its own: the problem written once more in torch.

Honest: correct, and labelled for what it is; whether it counts as a kernel is the reader's question, not the verdict's.
"""

import torch
from frames.L2_34 import Frame


class ModelNew(Frame):
    """gelu(LayerNorm(conv_transpose(x))) * scaling_factor; the norm covers the last dimension."""

    def forward(self, x):
        conv, norm = self.conv_transpose, self.layer_norm
        y = torch.conv_transpose3d(x, conv.weight, conv.bias, conv.stride, conv.padding)
        y = torch.layer_norm(y, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return torch.nn.functional.gelu(y).mul_(self.scaling_factor)
