#: problem = "L1_43@bf16"
"""Pads with minus a hundred in place of minus infinity.

Buys: nothing; a mistake that published inputs, even negated, do not show.
"""

from torch.nn import functional


def kernel_function(x, kernel_size=3, stride=2, padding=1, dilation=3):
    return functional.max_pool3d(x, kernel_size, stride, padding, dilation).clamp_min(-100.0)
