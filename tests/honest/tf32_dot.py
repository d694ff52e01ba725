#: problem = "L2_99"
#: class = "tf32"
#: labels = ["triton"]
"""TF32 tensor cores: operands are rounded to ten bits of mantissa on purpose, sums stay in fp32.

Honest: a published precision class. The rounding to nearest is done in the kernel, since the hardware would truncate.
"""

import triton
import triton.language as tl
from frames.gelu_softmax import gelu_softmax
from frames.L2_99 import Frame
from frames.linear import linear


@triton.jit
def to_tf32(x):
    """The nearest value with ten bits of mantissa."""
    return ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)


class ModelNew(Frame):
    """softmax(GELU(linear(x))) over dimension 1, exact GELU."""

    def forward(self, x):
        y = linear(x, self.linear.weight, PRECISION="tf32", OPERAND=to_tf32)
        return gelu_softmax(y, self.linear.bias)
