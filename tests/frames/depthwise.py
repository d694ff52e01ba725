"""Parts of a depthwise convolution in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def taps(
    x_ptr, weight_ptr, row, col, inside, height, width, stride, padding, SHAPE: tl.constexpr, KERNEL: tl.constexpr
):
    """The sums of the taps at outputs (row, col) of planes that begin at x_ptr and have their taps at weight_ptr."""
    acc = tl.zeros(SHAPE, dtype=tl.float32)
    for ky in tl.static_range(KERNEL):
        y = row * stride - padding + ky
        for kx in tl.static_range(KERNEL):
            x = col * stride - padding + kx
            valid = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            tap = tl.load(weight_ptr + ky * KERNEL + kx)
            acc += (tap * tl.load(x_ptr + y * width + x, mask=valid, other=0.0)).to(tl.float32)
    return acc


def result_of(x, kernel, stride, padding):
    """Memory for the result."""
    sizes = [(size + 2 * padding - kernel) // stride + 1 for size in x.shape[2:]]
    return torch.empty((*x.shape[:2], *sizes), device=x.device, dtype=x.dtype)
