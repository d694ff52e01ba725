#: problem = "L1_82@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""bf16 end to end where the problem is bf16: loads, products and stores in bf16, only the nine sums in fp32.

Honest: rounding every product to bf16 is what a kernel in this precision may do; the error stays within its class.
"""

import triton
import triton.language as tl
from frames.depthwise import result_of, taps


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


def kernel_function(x, weight, stride=1, padding=0):
    """x: (batch, channels, height, width); weight: (channels, 1, k, k)."""
    x, weight = x.contiguous(), weight.contiguous()
    kernel = weight.shape[-1]
    out = result_of(x, kernel, stride, padding)
    grid = (x.shape[0] * x.shape[1], triton.cdiv(out.shape[2], 16), triton.cdiv(out.shape[3], 64))
    depthwise_kernel[grid](
        x, weight, out, *x.shape[1:], *out.shape[2:], stride, padding, KERNEL=kernel, ROWS=16, COLS=64
    )
    return out
