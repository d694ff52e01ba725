#: problem = "L1_77@bf16"
#: class = "bf16"
#: labels = ["no_custom_kernel", "torch_fallback"]
"""No kernel of its own, for an artifact problem: the library's transposed convolution.

Honest: correct, and labelled for what it is; whether it counts as a kernel is the reader's question, not the verdict's.
"""

import torch


def kernel_function(x, weight, stride=1, padding=0, dilation=1):
    """x: (batch, channels, D, H, W); weight: (channels, out_channels, k, k, k)."""
    return torch.conv_transpose3d(x, weight, stride=stride, padding=padding, dilation=dilation)
