#: problem = "L1_82"
#: class = "fp32"
#: labels = ["triton"]
"""A dense result with unusual strides: the output has its channels last in memory.

Honest: shape, type and values are those of the reference, every element has memory of its own, and the order of the
dimensions in memory is the kernel's choice (torch's own convolutions return such tensors).
"""

import torch
import triton
import triton.language as tl
from frames.depthwise import result_of, taps
from frames.L1_82 import Frame


@triton.jit
def depthwise_kernel(
    x_ptr, weight_ptr, out_ptr, channels, height, width, out_height, out_width, stride, padding,
    KERNEL: tl.constexpr, BLOCK_C: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out: (batch, out_height, out_width, channels). Grid: (batch * out_height, column blocks, channel blocks)."""
    image = (tl.program_id(0) // out_height).to(tl.int64)
    row = tl.program_id(0) % out_height
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)[:, None]
    channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    inside = (col < out_width) & (channel < channels)
    acc = taps(
        x_ptr + (image * channels + channel) * height * width,
        weight_ptr + tl.minimum(channel, channels - 1) * KERNEL * KERNEL,
        row, col, inside, height, width, stride, padding, (COLS, BLOCK_C), KERNEL,
    )  # fmt: skip
    at = ((image * out_height + row) * out_width + col) * channels + channel
    tl.store(out_ptr + at, acc, mask=inside)


class ModelNew(Frame):
    """nn.Conv2d with one group a channel under the name `conv2d`; returns channels_last memory."""

    def forward(self, x):
        x = x.contiguous()
        conv = self.conv2d
        kernel, stride, padding = conv.kernel_size[0], conv.stride[0], conv.padding[0]
        out = result_of(x, kernel, stride, padding).to(memory_format=torch.channels_last)
        (batch, channels), (rows, cols) = x.shape[:2], out.shape[2:]
        depthwise_kernel[(batch * rows, triton.cdiv(cols, 64), triton.cdiv(channels, 16))](
            x, conv.weight, out, *x.shape[1:], rows, cols, stride, padding, KERNEL=kernel, BLOCK_C=16, COLS=64
        )
        return out if conv.bias is None else out.add_(conv.bias[:, None, None])
