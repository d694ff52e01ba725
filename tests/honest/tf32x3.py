#: problem = "L2_84"
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""Three TF32 products in place of one in fp32: what the first rounding lost is multiplied apart and added.

Honest: the name of a low precision stands in the source, the result has nearly that of fp32.
"""

from frames.L2_84 import Frame
from frames.linear import linear
from frames.norm_softmax import norm_softmax


class ModelNew(Frame):
    """softmax(scale * BatchNorm(linear(x))) over dimension 1, running statistics."""

    def forward(self, x):
        return norm_softmax(linear(x, self.gemm.weight, PRECISION="tf32x3"), self)
