#: problem = "L2_34"
#: class = "tf32"
#: labels = ["triton", "torch_fallback"]
"""GELU in its tanh form where the problem has the exact one: at most 5e-4 apart, within the class of TF32.

Honest: an approximation whose error is known and bounded for every input; the measured class carries it.
"""

import triton
import triton.language as tl
from frames.L2_34 import Frame
from frames.layer_norm import layer_norm_kernel


@triton.jit
def gelu_tanh(x):
    """0.5 x (1 + tanh(u)) as x / (1 + 2^(-2 u log2(e)))."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x / (1.0 + tl.exp2(tl.minimum(u * -2.8853900817779268, 120.0)))


class ModelNew(Frame):
    """gelu(LayerNorm(conv_transpose(x))) * scaling_factor; the norm covers the last dimension."""

    def forward(self, x):
        norm, y = self.layer_norm, self.conv_transpose(x).contiguous()
        width = y.shape[-1]
        rows = y.numel() // width
        layer_norm_kernel[(triton.cdiv(rows, 32),)](
            y, norm.weight, norm.bias, y, rows, width, norm.eps, self.scaling_factor,
            ROWS=32, BLOCK=triton.next_power_of_2(width), TAIL=gelu_tanh,
        )  # fmt: skip
        return y
