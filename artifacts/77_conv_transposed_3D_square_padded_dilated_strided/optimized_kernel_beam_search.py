"""3D transposed convolution that computes only the outputs that can differ from zero.

o = stride*i - padding + dilation*k. With g = gcd(stride, dilation), o is congruent to -padding mod g: of stride 2 and
dilation 2 only every second o in each dimension is ever reached, 1 position in 8. Let o = g*q + r, r = -padding mod g;
then q obeys the same equation with stride/g, dilation/g and padding (padding + r)/g, and for the study's problem it is
a dense convolution. (Where g is 1 nothing shrinks and the same code is a general transposed convolution.)

Four kernels: x and the weights are repacked so that channels are contiguous (16-byte loads; 17 MB, once), an implicit
GEMM [positions x C_in] @ [C_in x C_out] sums the taps and stores whole rows, zeros interleaved, and the last writes
zeros to the rows that are never reached. Every output is written once: the writes are the floor of this problem.
"""

import math

import torch
import triton
import triton.language as tl

Triple = tuple[int, int, int]


@triton.jit
def transpose_kernel(src_ptr, dst_ptr, rows, cols, BLOCK: tl.constexpr):
    """dst[b, col, row] = src[b, row, col], a BLOCK x BLOCK tile a program."""
    start = tl.program_id(2).to(tl.int64) * rows * cols
    row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    tile = tl.load(src_ptr + start + row[:, None] * cols + col[None, :], mask=inside)
    at = start + col[:, None] * rows + row[None, :]
    tl.store(dst_ptr + at, tl.trans(tile), mask=(col < cols)[:, None] & (row < rows)[None, :])


@triton.jit
def reached_rows_kernel(
    x_ptr, w_ptr, out_ptr, total, C_IN: tl.constexpr, C_OUT: tl.constexpr,
    SIZE: tl.constexpr, OUT: tl.constexpr, REACHED: tl.constexpr, KERNEL: tl.constexpr,
    STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr, STEP: tl.constexpr, FIRST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """BLOCK_M reached positions x BLOCK_N output channels.

    x: (batch, D*H*W, C_IN); w: (taps, C_IN, C_OUT); the triples are (depth, height, width). REACHED is the number of
    positions q, STRIDE, PADDING and DILATION are those of q, and position q is stored at o = STEP*q + FIRST.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    co = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    qw = m % REACHED[2]
    qh = m // REACHED[2] % REACHED[1]
    qd = m // (REACHED[2] * REACHED[1]) % REACHED[0]
    sample = (m // (REACHED[2] * REACHED[1] * REACHED[0])).to(tl.int64)
    x_rows = x_ptr + sample * (SIZE[0] * SIZE[1] * SIZE[2] * C_IN)

    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    chunks: tl.constexpr = (C_IN + BLOCK_K - 1) // BLOCK_K
    for step in range(KERNEL[0] * KERNEL[1] * KERNEL[2] * chunks):
        tap = step // chunks
        ci = step % chunks * BLOCK_K + tl.arange(0, BLOCK_K)
        td = qd + PADDING[0] - tap // (KERNEL[1] * KERNEL[2]) * DILATION[0]
        th = qh + PADDING[1] - tap // KERNEL[2] % KERNEL[1] * DILATION[1]
        tw = qw + PADDING[2] - tap % KERNEL[2] * DILATION[2]
        inside = (m < total) & (td >= 0) & (th >= 0) & (tw >= 0)
        inside = inside & (td < SIZE[0] * STRIDE[0]) & (th < SIZE[1] * STRIDE[1]) & (tw < SIZE[2] * STRIDE[2])
        inside = inside & (td % STRIDE[0] == 0) & (th % STRIDE[1] == 0) & (tw % STRIDE[2] == 0)
        at = (td // STRIDE[0] * SIZE[1] + th // STRIDE[1]) * SIZE[2] + tw // STRIDE[2]
        x_at = (at * C_IN)[:, None] + ci[None, :]
        x = tl.load(x_rows[:, None] + x_at, mask=inside[:, None] & (ci < C_IN)[None, :], other=0.0)
        w_at = (tap * C_IN + ci)[:, None] * C_OUT + co[None, :]
        w = tl.load(w_ptr + w_at, mask=(ci < C_IN)[:, None] & (co < C_OUT)[None, :], other=0.0)
        if UPCAST:
            x, w = x.to(tl.float32), w.to(tl.float32)
        acc = tl.dot(x, w, acc, input_precision="ieee")

    value = tl.trans(acc.to(out_ptr.dtype.element_ty))  # columns of the output fastest
    row = ((qd * STEP[0] + FIRST[0]) * OUT[1] + qh * STEP[1] + FIRST[1]) * OUT[2] + qw * STEP[2]
    volume: tl.constexpr = OUT[0] * OUT[1] * OUT[2]
    out_at = (out_ptr + sample * (C_OUT * volume) + row)[None, :] + (co * volume)[:, None]
    inside = (m < total)[None, :]
    if C_OUT % BLOCK_N != 0:
        inside = inside & (co < C_OUT)[:, None]
    zero = tl.zeros_like(value)
    if STEP[2] == 2:
        both = tl.join(zero, value) if FIRST[2] == 1 else tl.join(value, zero)
        lane = tl.arange(0, 2)[None, None, :]
        fits = (qw * 2)[None, :, None] + lane < OUT[2]
        tl.store(out_at[:, :, None] + lane, both, mask=inside[:, :, None] & fits)
    else:
        lanes: tl.constexpr = STEP[2]
        for lane in tl.static_range(lanes):
            fits = (qw * lanes + lane < OUT[2])[None, :]
            tl.store(out_at + lane, value if lane == FIRST[2] else zero, mask=inside & fits)


@triton.jit
def empty_rows_kernel(
    out_ptr, OUT: tl.constexpr, REACHED: tl.constexpr, STEP: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    """Zeros where reached_rows_kernel stores nothing, BLOCK outputs of one (sample, channel, od)."""
    plane = tl.program_id(0)
    od = plane % OUT[0]
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oh, ow = at // OUT[2], at % OUT[2]
    stored = (od % STEP[0] == FIRST[0]) & (oh % STEP[1] == FIRST[1]) & (ow < REACHED[2] * STEP[2])
    empty = (at < OUT[1] * OUT[2]) & (stored == 0)
    zero = tl.zeros([BLOCK], dtype=out_ptr.dtype.element_ty)
    tl.store(out_ptr + plane.to(tl.int64) * (OUT[1] * OUT[2]) + at, zero, mask=empty)


def triple(value: int | tuple[int, ...]) -> Triple:
    """One number for each of depth, height and width."""
    return (value, value, value) if isinstance(value, int) else (value[0], value[1], value[2])


def swapped(src: torch.Tensor, batch: int, rows: int, cols: int) -> torch.Tensor:
    """src, read as (batch, rows, cols), as a new (batch, cols, rows)."""
    dst = torch.empty((batch, cols, rows), device=src.device, dtype=src.dtype)
    block = 64
    grid = (triton.cdiv(cols, block), triton.cdiv(rows, block), batch)
    transpose_kernel[grid](src, dst, rows, cols, BLOCK=block, num_warps=4)
    return dst


def kernel_function(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
) -> torch.Tensor:
    """x: (batch, C_in, D, H, W); weight: (C_in, C_out, KD, KH, KW); returns (batch, C_out, OD, OH, OW)."""
    x, weight = x.contiguous(), weight.contiguous()
    s, p, d = triple(stride), triple(padding), triple(dilation)
    batch, c_in = x.shape[:2]
    c_out = weight.shape[1]
    size, k = triple(x.shape[2:]), triple(weight.shape[2:])
    full = triple(tuple((size[i] - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + 1 for i in range(3)))
    step = triple(tuple(math.gcd(s[i], d[i]) for i in range(3)))
    first = triple(tuple(-p[i] % step[i] for i in range(3)))
    reached = triple(tuple(max(0, (full[i] - first[i] - 1) // step[i] + 1) for i in range(3)))
    out = torch.empty((batch, c_out, *full), device=x.device, dtype=x.dtype)

    total = batch * math.prod(reached)
    if total:
        x_last = swapped(x, batch, c_in, math.prod(size))
        w_taps = swapped(weight, 1, c_in * c_out, math.prod(k))
        block_m, block_n, block_k = 128, min(max(16, triton.next_power_of_2(c_out)), 64), 32
        reached_rows_kernel[(triton.cdiv(total, block_m), triton.cdiv(c_out, block_n))](
            x_last, w_taps, out, total, C_IN=c_in, C_OUT=c_out,
            SIZE=size, OUT=full, REACHED=reached, KERNEL=k,
            STRIDE=tuple(s[i] // step[i] for i in range(3)),
            PADDING=tuple((p[i] + first[i]) // step[i] for i in range(3)),
            DILATION=tuple(d[i] // step[i] for i in range(3)),
            STEP=step, FIRST=first, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
            UPCAST=x.device.type == "cpu",  # Triton's interpreter multiplies the raw bits of bf16
            num_warps=8, num_stages=3, maxnreg=128,  # two programs a multiprocessor
        )  # fmt: skip
    if step[0] > 1 or step[1] > 1 or reached[2] * step[2] < full[2]:
        block = 1024
        grid = (batch * c_out * full[0], triton.cdiv(full[1] * full[2], block))
        empty_rows_kernel[grid](out, OUT=full, REACHED=reached, STEP=step, FIRST=first, BLOCK=block, num_warps=4)
    return out
