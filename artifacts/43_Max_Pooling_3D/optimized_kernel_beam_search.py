"""3D max pooling as a separable maximum: whole rows first, then the columns inside the registers.

The maximum over a box is the maximum over depth and height of every input column, then over the taps in width. So a
program takes neighbouring output rows, loads KD*KH input rows for each (contiguous, 16 bytes a thread, where a load
for every tap would be strided) and picks the KW columns of each window with tl.gather. Neighbouring programs share
input rows through L1 and L2. Padding counts as minus infinity; a NaN in the window is the result, as in PyTorch.
"""

import torch
import triton
import triton.language as tl

TILE = 2048  # input values a program holds: 16 for each of 128 threads
ALIGN = tl.constexpr(8)  # columns of 16 bytes in bf16


@triton.jit
def max_pool_rows_kernel(
    x_ptr, out_ptr, total,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DD: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_OW: tl.constexpr,
):  # fmt: skip
    """ROWS of the `total` output rows x BLOCK_OW columns; K, S, P, second D: kernel, stride, padding, dilation."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    oh = row % OH
    od = row // OH % OD
    volumes = x_ptr + (row // (OH * OD)).to(tl.int64) * (D * H * W)

    # The input columns that the tile's windows span, from an aligned one on.
    first_ow = tl.program_id(1) * BLOCK_OW
    first_w = tl.maximum(first_ow * SW - PW, 0) // ALIGN * ALIGN
    w = first_w + tl.arange(0, BLOCK_W)
    best = tl.full([ROWS, BLOCK_W], float("-inf"), dtype=tl.float32)
    for kd in tl.static_range(KD):
        d = od * SD - PD + kd * DD
        for kh in tl.static_range(KH):
            h = oh * SH - PH + kh * DH
            row_inside = (row < total) & (d >= 0) & (d < D) & (h >= 0) & (h < H)
            at = ((d * H + h) * W)[:, None] + w[None, :]
            x = tl.load(volumes[:, None] + at, mask=row_inside[:, None] & (w < W)[None, :], other=float("-inf"))
            best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)

    ow = first_ow + tl.arange(0, BLOCK_OW)
    pooled = tl.full([ROWS, BLOCK_OW], float("-inf"), dtype=tl.float32)
    for kw in tl.static_range(KW):
        column = ow * SW - PW + kw * DW
        inside = (column >= 0) & (column < W) & (ow < OW)
        index = tl.where(inside, column - first_w, 0)[None, :] + tl.zeros([ROWS, BLOCK_OW], dtype=tl.int32)
        picked = tl.where(inside[None, :], tl.gather(best, index, axis=1), float("-inf"))
        pooled = tl.maximum(pooled, picked, propagate_nan=tl.PropagateNan.ALL)
    at = row.to(tl.int64)[:, None] * OW + ow[None, :]
    tl.store(out_ptr + at, pooled, mask=(row < total)[:, None] & (ow < OW)[None, :])


def triple(value: int | tuple[int, ...]) -> tuple[int, int, int]:
    """One number for each of depth, height and width."""
    return (value, value, value) if isinstance(value, int) else (value[0], value[1], value[2])


def widths(in_width: int, out_width: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """(BLOCK_W, BLOCK_OW): as many outputs as there are, while the input columns they span stay within 1024."""
    block_ow = triton.next_power_of_2(out_width)
    while True:
        span = (block_ow - 1) * stride + (kernel - 1) * dilation + ALIGN.value
        block_w = triton.next_power_of_2(min(span, in_width))
        if block_w <= 1024 or block_ow == 1:
            return block_w, block_ow
        block_ow //= 2


def kernel_function(
    x: torch.Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
) -> torch.Tensor:
    """x: (..., depth, height, width); returns the pooled tensor (ceil_mode False)."""
    x = x.contiguous()
    k, p, d = triple(kernel_size), triple(padding), triple(dilation)
    s = k if stride is None else triple(stride)
    size = x.shape[-3:]
    od, oh, ow = ((size[i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(3))
    out = torch.empty((*x.shape[:-3], od, oh, ow), device=x.device, dtype=x.dtype)
    block_w, block_ow = widths(size[2], ow, k[2], s[2], d[2])
    rows, total = max(1, TILE // block_w), out.numel() // ow
    max_pool_rows_kernel[(triton.cdiv(total, rows), triton.cdiv(ow, block_ow))](
        x, out, total, *size, od, oh, ow, *k, *s, *p, *d, ROWS=rows, BLOCK_W=block_w, BLOCK_OW=block_ow, num_warps=4
    )
    return out
