#: problem = "L1_82"
#: timing = ["cuda"]
#: class = "fp32"
#: labels = ["triton", "autotuned"]
"""triton.autotune: the first call of a shape times a few tilings on the real tensors and keeps the fastest.

Honest: what is remembered is a configuration a shape. The trial launches write the same output as the last one, so a
repeated launch changes nothing. Where there is no GPU there is nothing to time, and one tiling is listed.
"""

import torch
import triton
import triton.language as tl
from frames.depthwise import result_of, taps
from frames.L1_82 import Frame

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((16, 64, 4), (8, 128, 4), (16, 128, 8), (4, 256, 4))
]


@triton.autotune(configs=CONFIGS if torch.cuda.is_available() else CONFIGS[:1], key=["out_height", "out_width"])
@triton.jit
def depthwise_kernel(
    x_ptr, weight_ptr, out_ptr, channels, height, width, out_height, out_width, stride, padding,
    KERNEL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A tile of one plane; plane = image * channels + channel. Grid: (planes, row blocks, column blocks)."""
    plane = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(2) * COLS + tl.arange(0, COLS)[None, :]
    inside = (row < out_height) & (col < out_width)
    acc = taps(
        x_ptr + plane * height * width, weight_ptr + plane % channels * KERNEL * KERNEL, row, col, inside,
        height, width, stride, padding, (ROWS, COLS), KERNEL,
    )  # fmt: skip
    at = out_ptr + plane * out_height * out_width + row * out_width + col
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(Frame):
    """nn.Conv2d with one group a channel under the name `conv2d`; without a bias, as the problem has it."""

    def forward(self, x):
        x, conv = x.contiguous(), self.conv2d
        kernel, stride, padding = conv.kernel_size[0], conv.stride[0], conv.padding[0]
        out = result_of(x, kernel, stride, padding)
        planes, (rows, cols) = x.shape[0] * x.shape[1], out.shape[2:]
        depthwise_kernel[lambda meta: (planes, triton.cdiv(rows, meta["ROWS"]), triton.cdiv(cols, meta["COLS"]))](
            x, conv.weight, out, *x.shape[1:], rows, cols, stride, padding, KERNEL=kernel
        )
        return out if conv.bias is None else out.add_(conv.bias[:, None, None])
