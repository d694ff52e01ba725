#: problem = "L2_84"
#: class = ["fp32", "tf32"]
"""Softmax as exp(x - logsumexp(x)).

Honest: an identity that never overflows. At logits of hundreds the rounding of the difference costs digits, and the
measured class carries that.
"""

import torch
from frames.L2_84 import Frame


class ModelNew(Frame):
    """softmax(scale * batch_norm(linear(x))) over dimension 1."""

    def forward(self, x):
        y = self.scale * self.bn(self.gemm(x))
        return torch.exp(y - torch.logsumexp(y, dim=1, keepdim=True))
