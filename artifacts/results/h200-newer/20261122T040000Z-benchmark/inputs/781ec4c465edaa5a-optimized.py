"""3D max pooling as a separable maximum that walks along depth: a program loads each of its input planes once.

The maximum over a box is the maximum over depth and height of every input column, then over the taps in width.

Fast path. Windows overlap in depth: with stride 2 and dilation 3 tap k of output plane od is tap k - 2 of plane od + 3.
So a program takes a block of output rows and walks the chain of planes od, od + 3, od + 6, .. At each step it loads the
rows of the taps that are new, 16 bytes a thread and all of them before the first use, takes the maximum over height,
and keeps in registers what later steps need. Rows shared within the block meet in L1, those at its edges in L2, so DRAM
sees each row once. The taps in width that another thread holds come by shuffles, for an input row spans at most one
warp; 16-bit values are compared two at a time. At the problem's shape nothing passes through shared memory.

General path, for rows that are wider or not a multiple of 16 bytes, larger windows, and strides in width that do not
divide a thread's columns: neighbouring output rows, KD*KH input rows for each, and tl.gather for the taps in width.

Padding counts as minus infinity; a NaN in the window is the result, as in PyTorch.
"""

import math

import torch
import triton
import triton.language as tl

WARP = tl.constexpr(32)
LOAD_BYTES = 16  # a thread's part of a row in the fast path
CHAIN_WARPS = 8  # of a program of the fast path: 16 rows of 128 columns in bf16
MOST_TAPS = 7  # of the fast path in an axis: they are unrolled, and their tiles live in registers
MOST_INDEX = 2**30  # rows, and places in a plane, that the fast path counts in 32 bits
TILE = 2048  # input values that a program of the general path holds: 16 for each of 128 threads
ALIGN = tl.constexpr(8)  # columns of 16 bytes in bf16


@triton.jit
def larger(a, b, PACKED: tl.constexpr):
    """Elementwise maximum; a NaN wins. PACKED: one instruction for two 16-bit values (PTX, sm_80 and later)."""
    if PACKED and a.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    elif PACKED and a.dtype == tl.float16:
        return tl.inline_asm_elementwise(
            "max.NaN.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.float16, is_pure=True, pack=2
        )
    else:
        return tl.maximum(a.to(tl.float32), b.to(tl.float32), propagate_nan=tl.PropagateNan.ALL).to(a.dtype)


@triton.jit
def nearest_tap(i, LOW: tl.constexpr, HIGH: tl.constexpr, SIZE: tl.constexpr, DILATION: tl.constexpr):
    """i, in LOW..HIGH, or the nearest place multiples of DILATION away that is in 0..SIZE-1.

    That is a tap of the same window, so one in the padding repeats another and needs no mask.
    """
    for _ in tl.static_range((-LOW + DILATION - 1) // DILATION if LOW < 0 else 0):
        i = tl.where(i < 0, i + DILATION, i)
    for _ in tl.static_range((HIGH - SIZE + DILATION) // DILATION if HIGH >= SIZE else 0):
        i = tl.where(i >= SIZE, i - DILATION, i)
    return i


@triton.jit
def load_planes(
    x_rows, od, FIRST: tl.constexpr, LAST: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OD: tl.constexpr, KH: tl.constexpr,
    SD: tl.constexpr, PD: tl.constexpr, DD: tl.constexpr, BLOCK_W: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Taps FIRST..LAST-1 in depth of output plane od: the maximum over height, a tile [ROWS, BLOCK_W] for each."""
    columns = (tl.arange(0, BLOCK_W) < W)[None, :]
    rows = ()  # all loads come before the first use
    for kd in tl.static_range(FIRST, LAST):
        d = nearest_tap(od * SD - PD + kd * DD, kd * DD - PD, (OD - 1) * SD - PD + kd * DD, D, DD)
        plane = tl.cast(d, tl.int64) * (H * W)
        for kh in tl.static_range(KH):
            rows = rows + (tl.load(x_rows[kh] + plane, mask=columns, other=float("-inf")),)
    tiles = ()
    for kd in tl.static_range(LAST - FIRST):
        best = rows[kd * KH]
        for kh in tl.static_range(1, KH):
            best = larger(best, rows[kd * KH + kh], PACKED)
        tiles = tiles + (best,)
    return tiles


@triton.jit
def split_columns(x, ROWS: tl.constexpr, LANES: tl.constexpr, LOG_C: tl.constexpr):
    """[ROWS, LANES * C] -> C tensors of [ROWS, LANES]: column i, i + C, i + 2C, .. (C = 2 ** LOG_C, a thread's)."""
    parts = (tl.reshape(x, [ROWS, LANES] + [2] * LOG_C),)
    for level in tl.static_range(LOG_C):
        evens = ()
        odds = ()
        for i in tl.static_range(2**level):
            even, odd = tl.split(parts[i])
            evens = evens + (even,)
            odds = odds + (odd,)
        parts = evens + odds
    return parts


@triton.jit
def join_columns(parts, ROWS: tl.constexpr, LANES: tl.constexpr, LOG_C: tl.constexpr):
    """The inverse of split_columns."""
    for level in tl.static_range(LOG_C):
        joined = ()
        for i in tl.static_range(2 ** (LOG_C - 1 - level)):
            joined = joined + (tl.join(parts[i], parts[i + 2 ** (LOG_C - 1 - level)]),)
        parts = joined
    return tl.reshape(parts[0], [ROWS, LANES * 2**LOG_C])


@triton.jit
def shifted(columns, AT: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """[ROWS, LANES]: the column AT places right of each thread's first, if need be a neighbour's; else -infinity."""
    AWAY: tl.constexpr = AT // C
    column = columns[AT - AWAY * C]
    if AWAY != 0:
        lane = tl.arange(0, LANES)[None, :] + AWAY + tl.zeros([ROWS, LANES], dtype=tl.int32)
        column = tl.gather(column, lane & (LANES - 1), axis=1)
        outside = tl.full([ROWS, LANES], float("-inf"), dtype=tl.float32).to(column.dtype)
        column = tl.where((lane >= 0) & (lane < LANES), column, outside)
    return column


@triton.jit
def pool_width(
    x, KW: tl.constexpr, SW: tl.constexpr, PW: tl.constexpr, DW: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, LOG_C: tl.constexpr, LOG_OUT: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """[ROWS, LANES * C] input columns -> [ROWS, LANES * C / SW] outputs, 2 ** LOG_OUT of them a thread."""
    columns = split_columns(x, ROWS, LANES, LOG_C)
    for kw in tl.static_range(KW):
        taps = ()
        for i in tl.static_range(2**LOG_OUT):
            taps = taps + (shifted(columns, i * SW - PW + kw * DW, 2**LOG_C, ROWS, LANES),)
        tap = join_columns(taps, ROWS, LANES, LOG_OUT)
        if kw == 0:
            best = tap
        else:
            best = larger(best, tap, PACKED)
    return best


@triton.jit
def max_pool_chain_kernel(
    x_ptr, out_ptr, total,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DD: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    CHAINS: tl.constexpr, FRESH: tl.constexpr, PACKED: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, LOG_C: tl.constexpr, LOG_OUT: tl.constexpr,
):  # fmt: skip
    """ROWS of the `total` output rows of a plane, of all volumes, in output planes chain, chain + CHAINS, ..

    K, S, P, second D: kernel, stride, padding, dilation. FRESH of the KD planes of a window are not in the one before.
    """
    BLOCK_W: tl.constexpr = LANES * 2**LOG_C
    BLOCK_OW: tl.constexpr = LANES * 2**LOG_OUT
    block = tl.program_id(0) // CHAINS
    chain = tl.program_id(0) % CHAINS

    row = tl.minimum(block * ROWS + tl.arange(0, ROWS), total - 1)
    x_tile = x_ptr + ((row // OH).to(tl.int64) * (D * H * W))[:, None] + tl.arange(0, BLOCK_W)[None, :]
    x_rows = ()
    for kh in tl.static_range(KH):
        h = nearest_tap(row % OH * SH - PH + kh * DH, kh * DH - PH, (OH - 1) * SH - PH + kh * DH, H, DH)
        x_rows = x_rows + (x_tile + (h * W)[:, None],)

    # Warps hold PAIR neighbour rows; the store wants rows ROWS / PAIR apart there. Permuted, they need no exchange.
    PAIR: tl.constexpr = WARP // LANES
    r = tl.arange(0, ROWS)
    out_row = block * ROWS + r % (ROWS // PAIR) * PAIR + r // (ROWS // PAIR)
    ow = tl.arange(0, BLOCK_OW)[None, :]
    out_rows = out_ptr + ((out_row // OH).to(tl.int64) * (OD * OH * OW) + out_row % OH * OW)[:, None] + ow
    writable = (out_row < total)[:, None] & (ow < OW)

    window = load_planes(x_rows, chain, 0, KD - FRESH, D, H, W, OD, KH, SD, PD, DD, BLOCK_W, PACKED)
    for od in tl.range(chain, OD, CHAINS, num_stages=1):
        window = window + load_planes(x_rows, od, KD - FRESH, KD, D, H, W, OD, KH, SD, PD, DD, BLOCK_W, PACKED)
        best = window[0]
        for kd in tl.static_range(1, KD):
            best = larger(best, window[kd], PACKED)
        kept = ()
        for kd in tl.static_range(FRESH, KD):
            kept = kept + (window[kd],)
        window = kept
        y = pool_width(best, KW, SW, PW, DW, ROWS, LANES, LOG_C, LOG_OUT, PACKED)
        y = tl.permute(tl.reshape(y, [ROWS // PAIR, PAIR, BLOCK_OW]), (1, 0, 2))
        tl.store(out_rows + tl.cast(od, tl.int64) * (OH * OW), tl.reshape(y, [ROWS, BLOCK_OW]), mask=writable)


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
    PARTS: tl.constexpr = (OW + BLOCK_OW - 1) // BLOCK_OW
    row = (tl.program_id(0) // PARTS).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    oh = row % OH
    od = row // OH % OD
    volumes = x_ptr + row // (OH * OD) * (D * H * W)

    # The input columns that the tile's windows span, from an aligned one on.
    first_ow = tl.program_id(0) % PARTS * BLOCK_OW
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
    at = row[:, None] * OW + ow[None, :]
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


def reaches(size: int, kernel: int, padding: int, dilation: int) -> bool:
    """Whether every window of an axis has a tap inside: the first and the last window do, and no step jumps over."""
    return dilation <= size and padding <= dilation * (kernel - 1)


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
    columns = LOAD_BYTES // x.element_size()
    lanes = triton.next_power_of_2(triton.cdiv(max(size[2], ow * s[2]), columns))
    total = out.numel() // (od * ow)
    if (
        lanes <= WARP.value
        and max(total, size[1] * size[2], oh * ow) < MOST_INDEX
        and size[2] % columns == 0
        and columns % s[2] == 0
        and max(k) <= MOST_TAPS
        and reaches(size[0], k[0], p[0], d[0])
        and reaches(size[1], k[1], p[1], d[1])
    ):
        # Tap kd of output plane od is tap kd - fresh of plane od + chains.
        common = math.gcd(s[0], d[0])
        fresh = min(s[0] // common, k[0])
        chains = min(d[0] // common, od) if fresh < k[0] else 1
        rows = CHAIN_WARPS * WARP.value // lanes
        max_pool_chain_kernel[(triton.cdiv(total, rows) * chains,)](
            x, out, total, *size, od, oh, ow, *k, *s, *p, *d, CHAINS=chains, FRESH=fresh, PACKED=not x.is_cpu,
            ROWS=rows, LANES=lanes, LOG_C=columns.bit_length() - 1, LOG_OUT=(columns // s[2]).bit_length() - 1,
            num_warps=CHAIN_WARPS,
        )  # fmt: skip
        return out
    block_w, block_ow = widths(size[2], ow, k[2], s[2], d[2])
    rows, total = max(1, TILE // block_w), total * od
    max_pool_rows_kernel[(triton.cdiv(total, rows) * triton.cdiv(ow, block_ow),)](
        x, out, total, *size, od, oh, ow, *k, *s, *p, *d, ROWS=rows, BLOCK_W=block_w, BLOCK_OW=block_ow, num_warps=4
    )
    return out
