"""KernelBench level 1, problem 82: depthwise 2D convolution, hand-written in Triton.

One program makes a tile of rows and columns of one channel of one image; the taps of neighbouring outputs overlap, so
all but the first read of a pixel hit the L1 cache. Sums in fp32. Floor: one read of the input and one write of the
output at copy bandwidth.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def depthwise_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    channels,
    height,
    width,
    out_height,
    out_width,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """x: (planes, height, width), out: (planes, out_height, out_width), plane = image * channels + channel.

    Grid: planes * row blocks * column blocks, columns fastest, so that neighbours share their halo in the cache.
    """
    col_blocks = tl.cdiv(out_width, COLS)
    row_blocks = tl.cdiv(out_height, ROWS)
    pid = tl.program_id(0)
    plane = pid // (col_blocks * row_blocks)
    channel = plane % channels
    row = (pid // col_blocks) % row_blocks * ROWS + tl.arange(0, ROWS)[:, None]
    col = pid % col_blocks * COLS + tl.arange(0, COLS)[None, :]
    # the taps start at any column: without this hint the aligned tap is loaded in fours, then exchanged between threads
    col = tl.multiple_of(col, (1, 1))
    inside = (row < out_height) & (col < out_width)

    x_plane = x_ptr + plane.to(tl.int64) * height * width
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for ky in tl.static_range(KERNEL):
        y = row * STRIDE + (ky - PADDING)
        for kx in tl.static_range(KERNEL):
            x = col * STRIDE + (kx - PADDING)
            valid = inside
            if PADDING > 0:
                valid = valid & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            tap = tl.load(weight_ptr + channel * KERNEL * KERNEL + ky * KERNEL + kx)
            acc += tap * tl.load(x_plane + y * width + x, mask=valid, other=0.0)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channel)
    out_plane = out_ptr + plane.to(tl.int64) * out_height * out_width
    tl.store(out_plane + row * out_width + col, acc, mask=inside)


class ModelNew(nn.Module):
    """nn.Conv2d with one group a channel under the name `conv2d`; only its parameters are used."""

    def __init__(
        self, in_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> None:
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, in_channels, height, width)."""
        x = x.contiguous()
        batch, channels, height, width = x.shape
        kernel, stride, padding = self.conv2d.kernel_size[0], self.conv2d.stride[0], self.conv2d.padding[0]
        out_height = (height + 2 * padding - kernel) // stride + 1
        out_width = (width + 2 * padding - kernel) // stride + 1
        out = torch.empty((batch, channels, out_height, out_width), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        weight, bias = self.conv2d.weight, self.conv2d.bias
        cols = min(128, triton.next_power_of_2(out_width))
        rows = 2048 // cols if out_height >= 16 else triton.next_power_of_2(out_height)
        grid = (batch * channels * triton.cdiv(out_height, rows) * triton.cdiv(out_width, cols),)
        with torch.cuda.device_of(x):
            depthwise_kernel[grid](
                x,
                weight.contiguous(),
                weight if bias is None else bias,
                out,
                channels,
                height,
                width,
                out_height,
                out_width,
                KERNEL=kernel,
                STRIDE=stride,
                PADDING=padding,
                HAS_BIAS=bias is not None,
                ROWS=rows,
                COLS=cols,
                num_warps=8 if rows * cols >= 2048 else 4,
            )
        return out
