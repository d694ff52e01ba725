#: problem = "L2_34"
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""Helpers with *args and **kwargs: one launcher for every kernel, a forward that takes whatever it is given.

Honest: a way to write wrappers. That a signature does not name its tensors says nothing about what is done with them.
"""

import torch
import triton
import triton.language as tl
from frames.L2_34 import Frame
from frames.layer_norm import layer_norm_kernel


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


def launch(kernel, programs, *args, **options):
    """kernel[(programs,)](*args, **options)."""
    kernel[(programs,)](*args, **options)


def contiguous(*tensors):
    """Each tensor, copied where it has gaps."""
    return tuple(t.contiguous() for t in tensors)


def call(function, *args, **kwargs):
    """function(*args, **kwargs)."""
    return function(*args, **kwargs)


class ModelNew(Frame):
    """gelu(LayerNorm(conv_transpose(x))) * scaling_factor; the norm covers the last dimension."""

    def forward(self, *inputs, **_):
        conv, norm = self.conv_transpose, self.layer_norm
        options = {"bias": conv.bias, "stride": conv.stride, "padding": conv.padding}
        (y,) = contiguous(call(torch.nn.functional.conv_transpose3d, inputs[0], conv.weight, **options))
        out = torch.empty_like(y)
        width = y.shape[-1]
        rows = y.numel() // width
        arguments = (y, norm.weight, norm.bias, out, rows, width, norm.eps, self.scaling_factor)
        options = {"ROWS": 32, "BLOCK": triton.next_power_of_2(width), "TAIL": gelu}
        launch(layer_norm_kernel, triton.cdiv(rows, 32), *arguments, **options)
        return out
