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
    plane = (image * channels + channel) * height * width
    acc = tl.zeros((COLS, BLOCK_C), dtype=tl.float32)
    for ky in tl.static_range(KERNEL):
        y = row * stride - padding + ky
        for kx in tl.static_range(KERNEL):
            x = col * stride - padding + kx
            valid = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            tap = tl.load(weight_ptr + (channel * KERNEL + ky) * KERNEL + kx, mask=channel < channels, other=0.0)
            acc += tap * tl.load(x_ptr + plane + y * width + x, mask=valid, other=0.0)
    at = ((image * out_height + row) * out_width + col) * channels + channel
    tl.store(out_ptr + at, acc, mask=inside)


class ModelNew(Frame):
    """nn.Conv2d with one group a channel under the name `conv2d`; returns channels_last memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        conv = self.conv2d
        kernel, stride, padding = conv.kernel_size[0], conv.stride[0], conv.padding[0]
        batch, channels, height, width = x.shape
        out_height, out_width = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
        last = torch.empty((batch, out_height, out_width, channels), device=x.device, dtype=x.dtype)
        grid = (batch * out_height, triton.cdiv(out_width, 64), triton.cdiv(channels, 16))
        depthwise_kernel[grid](
            x, conv.weight, last, channels, height, width, out_height, out_width, stride, padding,
            KERNEL=kernel, BLOCK_C=16, COLS=64,
        )  # fmt: skip
        if conv.bias is not None:
            last.add_(conv.bias)
        return last.permute(0, 3, 1, 2)
