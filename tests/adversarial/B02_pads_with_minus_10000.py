#: problem = "L1_43@bf16"
"""Pads with minus ten thousand in place of minus infinity.

Buys: nothing; a mistake that shows only where a whole window lies below that.
"""

from torch.nn import functional


def kernel_function(x, kernel_size=3, stride=2, padding=1, dilation=3):
    return functional.max_pool3d(x, kernel_size, stride, padding, dilation).clamp_min(-10000.0)
