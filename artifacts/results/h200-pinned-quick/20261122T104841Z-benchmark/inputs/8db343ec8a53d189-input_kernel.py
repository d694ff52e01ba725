"""Depthwise 2D convolution, first version: 256 outputs a program, one a lane, and a loop over the taps."""

import torch
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(x_ptr, w_ptr, out_ptr, total, C, H, W, OH, OW, KH, KW, SH, SW, PH, PW, BLOCK: tl.constexpr):
    """BLOCK outputs; K, S and P are kernel, stride and padding."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ow = index % OW
    oh = index // OW % OH
    image = index // OW // OH
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for kh in range(0, KH):
        h = oh * SH - PH + kh
        for kw in range(0, KW):
            w = ow * SW - PW + kw
            inside = (index < total) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + (image * H + h) * W + w, mask=inside, other=0.0)
            tap = tl.load(w_ptr + (image % C * KH + kh) * KW + kw)
            acc += x.to(tl.float32) * tap.to(tl.float32)
    tl.store(out_ptr + index, acc, mask=index < total)


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """One number for each of height and width."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def kernel_function(
    x: torch.Tensor, weight: torch.Tensor, stride: int | tuple[int, ...] = 1, padding: int | tuple[int, ...] = 0
) -> torch.Tensor:
    """x: (batch, C, H, W); weight: (C, 1, KH, KW); returns (batch, C, OH, OW)."""
    x, weight = x.contiguous(), weight.contiguous()
    s, p = pair(stride), pair(padding)
    batch, channels, *size = x.shape
    k = weight.shape[2:]
    oh, ow = ((size[i] + 2 * p[i] - k[i]) // s[i] + 1 for i in range(2))
    out = torch.empty((batch, channels, oh, ow), device=x.device, dtype=x.dtype)
    block = 256
    grid = (triton.cdiv(out.numel(), block),)
    depthwise_kernel[grid](x, weight, out, out.numel(), channels, *size, oh, ow, *k, *s, *p, BLOCK=block, num_warps=4)
    return out
