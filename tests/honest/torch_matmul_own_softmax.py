#: problem = "L2_84"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Half library, half own: torch.matmul for the product, one kernel for bias, batch norm, scale and softmax.

Honest: a library that is at its peak needs no replacement; the label says which part is whose.
"""

import torch
from frames.L2_84 import Frame
from frames.norm_softmax import norm_softmax


class ModelNew(Frame):
    """softmax(scale * BatchNorm(linear(x))) over dimension 1, running statistics."""

    def forward(self, x):
        return norm_softmax(torch.matmul(x, self.gemm.weight.t()), self)
