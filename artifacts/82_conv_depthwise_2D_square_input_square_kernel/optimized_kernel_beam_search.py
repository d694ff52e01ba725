"""Depthwise 2D convolution with rolling rows: weights in registers, each input row loaded once for all its outputs.

At stride 1, input row h is tap 0 of output row h, tap 1 of row h-1 and so on. A program walks down a strip of 15 rows
with one sum for each unfinished output row, so that with a 3x3 kernel an output costs 3.4 loads and not 9: L1, not
memory, limits the plain kernel. Results are stored at the end of the strip, because no load can be moved before an
earlier store (the compiler must assume that they overlap) and the rows' loads shall be in flight together. Strides and
kernels of more than 25 taps use the plain kernel: a tile of rows, every tap loaded for itself.
"""

import torch
import triton
import triton.language as tl

MOST_TAPS = 25


@triton.jit
def rolling_kernel(
    x_ptr, w_ptr, out_ptr, C, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS x BLOCK outputs of one (sample, channel) at stride 1."""
    strips: tl.constexpr = (OH + ROWS - 1) // ROWS
    image = (tl.program_id(0) // strips).to(tl.int64)
    first = tl.program_id(0) % strips * ROWS
    ow = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x_ptr += image * (H * W)
    out_ptr += image * (OH * OW)
    w_ptr += image % C * (KH * KW)
    weights = ()
    for tap in tl.static_range(KH * KW):
        weights = weights + (tl.load(w_ptr + tap).to(tl.float32),)

    at, inside = (), ()  # of the taps in width, within a row
    for kw in tl.static_range(KW):
        w = ow + kw - PW
        at = at + (w,)
        inside = inside + ((w >= 0) & (w < W) & (ow < OW),)

    sums = ()  # of the unfinished output rows, the oldest first
    for _ in tl.static_range(KH - 1):
        sums = sums + (tl.zeros([BLOCK], dtype=tl.float32),)
    finished = ()
    for step in tl.static_range(ROWS + KH - 1):
        h = first + step - PH
        sums = sums + (tl.zeros([BLOCK], dtype=tl.float32),)
        for kw in tl.static_range(KW):
            x = tl.load(x_ptr + h * W + at[kw], mask=inside[kw] & (h >= 0) & (h < H), other=0.0).to(tl.float32)
            added = ()
            for age in tl.static_range(KH):
                added = added + (sums[age] + x * weights[(KH - 1 - age) * KW + kw],)
            sums = added
        finished = finished + (sums[0].to(out_ptr.dtype.element_ty),)
        sums = sums[1:]
    for row in tl.static_range(ROWS):
        oh = first + row
        tl.store(out_ptr + oh * OW + ow, finished[row + KH - 1], mask=(oh < OH) & (ow < OW))


@triton.jit
def rows_kernel(
    x_ptr, w_ptr, out_ptr, C, H, W, OH, OW,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS x BLOCK outputs of one (sample, channel) for any kernel, stride and padding."""
    strips = tl.cdiv(OH, ROWS)
    image = (tl.program_id(0) // strips).to(tl.int64)
    oh = tl.program_id(0) % strips * ROWS + tl.arange(0, ROWS)
    ow = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (oh < OH)[:, None] & (ow < OW)[None, :]
    acc = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for kh in range(KH):
        h = oh * SH - PH + kh
        for kw in range(KW):
            w = ow * SW - PW + kw
            mask = inside & ((h >= 0) & (h < H))[:, None] & ((w >= 0) & (w < W))[None, :]
            x = tl.load(x_ptr + image * H * W + h[:, None] * W + w[None, :], mask=mask, other=0.0)
            acc += x.to(tl.float32) * tl.load(w_ptr + (image % C * KH + kh) * KW + kw).to(tl.float32)
    tl.store(out_ptr + image * OH * OW + oh[:, None] * OW + ow[None, :], acc, mask=inside)


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
    k = pair(weight.shape[2:])
    oh, ow = ((size[i] + 2 * p[i] - k[i]) // s[i] + 1 for i in range(2))
    out = torch.empty((batch, channels, oh, ow), device=x.device, dtype=x.dtype)
    if s == (1, 1) and k[0] * k[1] <= MOST_TAPS:
        # 15 divides the study's 510 rows; 512 columns are 2 a thread, so half of the loads take 4 bytes.
        rows, block = 15, min(max(32, triton.next_power_of_2(ow)), 512)
        grid = (batch * channels * triton.cdiv(oh, rows), triton.cdiv(ow, block))
        rolling_kernel[grid](
            x, weight, out, channels, *size, oh, ow, *k, *p, ROWS=rows, BLOCK=block, num_warps=max(1, block // 64)
        )
    else:
        rows, block = 4, 256
        grid = (batch * channels * triton.cdiv(oh, rows), triton.cdiv(ow, block))
        rows_kernel[grid](x, weight, out, channels, *size, oh, ow, *k, *s, *p, ROWS=rows, BLOCK=block, num_warps=4)
    return out
