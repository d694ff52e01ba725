#: problem = "L1_82@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""bf16 end to end where the problem is bf16: loads, products and stores in bf16, only the nine sums in fp32.

Honest: rounding every product to bf16 is what a kernel in this precision may do; the error stays within its class.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(
    x_ptr, weight_ptr, out_ptr, channels, height, width, out_height, out_width, stride, padding,
    KERNEL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A tile of one plane; plane = image * channels + channel. Grid: (planes, row blocks, column blocks)."""
    plane = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(2) * COLS + tl.arange(0, COLS)[None, :]
    inside = (row < out_height) & (col < out_width)
    x_ptr += plane.to(tl.int64) * height * width
    weight_ptr += plane % channels * KERNEL * KERNEL
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for ky in tl.static_range(KERNEL):
        y = row * stride - padding + ky
        for kx in tl.static_range(KERNEL):
            x = col * stride - padding + kx
            valid = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            product = tl.load(x_ptr + y * width + x, mask=valid, other=0.0) * tl.load(weight_ptr + ky * KERNEL + kx)
            acc += product.to(tl.float32)
    at = plane.to(tl.int64) * out_height * out_width + row * out_width + col
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)


def kernel_function(x: torch.Tensor, weight: torch.Tensor, stride: int = 1, padding: int = 0) -> torch.Tensor:
    """x: (batch, channels, height, width); weight: (channels, 1, k, k)."""
    x, weight = x.contiguous(), weight.contiguous()
    batch, channels, height, width = x.shape
    kernel = weight.shape[-1]
    out_height, out_width = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    out = torch.empty((batch, channels, out_height, out_width), device=x.device, dtype=x.dtype)
    grid = (batch * channels, triton.cdiv(out_height, 16), triton.cdiv(out_width, 64))
    depthwise_kernel[grid](
        x, weight, out, channels, height, width, out_height, out_width, stride, padding,
        KERNEL=kernel, ROWS=16, COLS=64,
    )  # fmt: skip
    return out
