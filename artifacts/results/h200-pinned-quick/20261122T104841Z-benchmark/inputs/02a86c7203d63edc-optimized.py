"""Depthwise 2D convolution whose rows are loaded and stored in aligned chunks of 16 bytes, at stride 1, no padding.

An output row is D = KW - 1 shorter than an input row, so output rows start anywhere within 16 bytes: stored from the
columns they were loaded at, they must go out in small pieces. `flat_kernel` takes the output as one line of chunks of V
values. Thread j of a row loads the input's chunks j and j + 1 (the second is its neighbour's, in L1), which is enough
for V outputs from any column S of the first. Output row g, counted through all images, has its first aligned chunk at
S = g * D % V, which repeats after P = V / D rows. A program's rows start at a multiple of P, so that the compiler knows
every S, and the shift is a choice of registers.

One chunk in most rows holds a row's end and the next row's start. The row's last thread, idle otherwise, makes it: the
second chunk it loads is the start of the next input row, D columns further than the outputs count, so they take their
inputs from D columns before. Only the first and last few outputs of an image, whose chunk is shared with another image,
are made apart.

A program makes four rows with no loop, and the loads of all four are under way before the first is used; at 55
registers some 18 programs share a multiprocessor and fill each other's waits. Input rows that two programs read come
from L2. Taller strips, rows in flight through a loop, shared memory and persistent programs are all slower on an H200.

Other paddings and kernel widths go to `rolling_kernel`; strides and kernels of more than 25 taps to `rows_kernel`.
"""

import math

import torch
import triton
import triton.language as tl

CHUNK_BYTES = 16
FLAT_ROWS = 4
FLAT_WIDTHS = (3, 5)  # of kernels
WIDEST = 8192  # input of flat_kernel: two chunks for each of 512 threads
MOST_TAPS = 25
MOST_OFFSET = 2**31 - 2**16  # inside an image, with 32 bits


@triton.jit
def split_columns(t):
    """The columns of t [N, 4] or [N, 8] as a tuple of tensors [N]."""
    n: tl.constexpr = t.shape[0]
    if t.shape[1] == 4:
        even, odd = tl.split(tl.reshape(t, [n, 2, 2]))
        c0, c2 = tl.split(even)
        c1, c3 = tl.split(odd)
        return (c0, c1, c2, c3)
    else:
        even, odd = tl.split(tl.reshape(t, [n, 2, 2, 2]))
        c04, c26 = tl.split(even)
        c15, c37 = tl.split(odd)
        c0, c4 = tl.split(c04)
        c2, c6 = tl.split(c26)
        c1, c5 = tl.split(c15)
        c3, c7 = tl.split(c37)
        return (c0, c1, c2, c3, c4, c5, c6, c7)


@triton.jit
def join_columns(c):
    """The inverse of split_columns."""
    n: tl.constexpr = c[0].shape[0]
    if len(c) == 4:
        return tl.reshape(tl.join(tl.join(c[0], c[2]), tl.join(c[1], c[3])), [n, 4])
    else:
        even = tl.join(tl.join(c[0], c[4]), tl.join(c[2], c[6]))
        odd = tl.join(tl.join(c[1], c[5]), tl.join(c[3], c[7]))
        return tl.reshape(tl.join(even, odd), [n, 8])


@triton.jit
def fp32(columns, WORDS: tl.constexpr):
    """The columns as fp32; WORDS: they are int32 of two bf16 each, an instruction a value to unpack."""
    out = ()
    for i in tl.static_range(len(columns)):
        if WORDS:
            low = (columns[i] << 16).to(tl.float32, bitcast=True)
            high = (columns[i] & -65536).to(tl.float32, bitcast=True)
            out = out + (low, high)
        else:
            out = out + (columns[i].to(tl.float32),)
    return out


@triton.jit
def load_row(x_ptr, h, j, H: tl.constexpr, W: tl.constexpr, V: tl.constexpr, WORDS: tl.constexpr):
    """Chunks j and j + 1 of row h; past the row's end comes the next row, if there is one."""
    M: tl.constexpr = V // 2 if WORDS else V
    L: tl.constexpr = W // V - 1  # the last chunk of a row
    row = x_ptr + h * W
    if WORDS:
        row = row.to(tl.pointer_type(tl.int32))
    at = row + (j[:, None] * M + tl.arange(0, M)[None, :])
    a = tl.load(at, mask=None if j.shape[0] == L + 1 else (j <= L)[:, None])
    b = tl.load(at + M, mask=(j < tl.where(h < H - 1, L + 1, L))[:, None])
    return a, b


@triton.jit
def row_values(a, b, last, V: tl.constexpr, D: tl.constexpr, WORDS: tl.constexpr):
    """x: the 2 V columns of chunks a and b; y: V columns from V - D, or, in the thread of two rows, the V of b."""
    x = split_columns(a) + split_columns(b)
    M: tl.constexpr = a.shape[1]
    y = ()
    for i in tl.static_range(M):
        y = y + (tl.where(last, x[M + i], x[M - D * M // V + i]),)
    return fp32(x, WORDS), fp32(y, WORDS)


@triton.jit
def pick(x, y, column: tl.constexpr, next_row: tl.constexpr, V: tl.constexpr, D: tl.constexpr):
    """An input column for an output that, in the thread of two rows, is one of the next row or not."""
    if next_row or (column >= V and column < 2 * V - D):
        # x has the columns V .. 2 V - D - 1 too; this spares their unpacking.
        return y[column - V + D]
    else:
        return x[column]


@triton.jit
def add_taps(sums, x, y, weights, tap: tl.constexpr, S: tl.constexpr, V: tl.constexpr, KW: tl.constexpr):
    """Row `tap` of the kernel times an input row, plus sums unless `tap` is 0, the first: V outputs from column S."""
    D: tl.constexpr = KW - 1
    out = ()
    for i in tl.static_range(V):
        total = pick(x, y, S + i, S < V - D and S + i >= V - D, V, D) * weights[tap * KW]
        if tap > 0:
            total += sums[i]
        for kw in tl.static_range(1, KW):
            total += pick(x, y, S + i + kw, S < V - D and S + i >= V - D, V, D) * weights[tap * KW + kw]
        out = out + (total,)
    return out


@triton.jit
def add_row(
    sums, chunks, last, weights, row: tl.constexpr,
    V: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Adds an input row to the unfinished output rows, of which the oldest is row `row` of the strip, and a new one."""
    x, y = row_values(chunks[0], chunks[1], last, V, KW - 1, WORDS)
    added = ()
    for age in tl.static_range(KH):
        # A new row has no sums: any tuple will do.
        taps = add_taps((sums + (x,))[age], x, y, weights, KH - 1 - age, (row + age) * (KW - 1) % V, V, KW)
        added = added + (taps,)
    return added


@triton.jit
def store_row(
    out_ptr, c, row: tl.constexpr, oh, j,
    V: tl.constexpr, D: tl.constexpr, L: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
):  # fmt: skip
    """Stores the chunks c of the strip's row `row`, oh of the image; out_ptr: the strip's start."""
    start: tl.constexpr = (row * OW + V - 1) // V * V  # the row's first chunk
    if row * D % V < V - D:  # its last chunk is also the next row's, where there is one
        until = tl.where(oh < OH - 1, L + 1, L)
    else:
        until = L
    until = tl.where((oh >= 0) & (oh < OH), until, 0)
    at = start + (j[:, None] * V + tl.arange(0, V)[None, :])
    tl.store(out_ptr + at, join_columns(c).to(out_ptr.dtype.element_ty), mask=(j < until)[:, None])


@triton.jit
def edge(x_ptr, out_ptr, weights, oh, first, count, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr):
    """Outputs first .. first + count - 1, at most 8, of row oh."""
    i = tl.arange(0, 8)
    total = tl.zeros([8], dtype=tl.float32)
    for kh in tl.static_range(KH):
        for kw in tl.static_range(KW):
            x = tl.load(x_ptr + (oh + kh) * W + first + kw + i, mask=i < count, other=0.0)
            total += x.to(tl.float32) * weights[kh * KW + kw]
    tl.store(out_ptr + oh * (W - KW + 1) + first + i, total.to(out_ptr.dtype.element_ty), mask=i < count)


@triton.jit
def flat_kernel(
    x_ptr, w_ptr, out_ptr, C, STRIPS: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, V: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of one (sample, channel) at stride 1 without padding; W is a multiple of V, V of D, ROWS of P."""
    D: tl.constexpr = KW - 1
    P: tl.constexpr = V // D
    OH: tl.constexpr = H - KH + 1
    OW: tl.constexpr = W - D
    L: tl.constexpr = W // V - 1  # the last chunk of a row
    image = (tl.program_id(0) // STRIPS).to(tl.int64)
    # The image's first row is row `lead` of P; before it lie rows of another image, which are not stored.
    lead = (image * OH % P).to(tl.int32)
    first = tl.program_id(0) % STRIPS * ROWS - lead
    x_ptr += image * (H * W)
    w_ptr += image % C * (KH * KW)
    weights = ()
    for tap in tl.static_range(KH * KW):
        weights = weights + (tl.load(w_ptr + tap).to(tl.float32),)
    j = tl.arange(0, N)
    last = j == L

    # first * OW is a multiple of V with the image's start, and the division tells the compiler.
    strip_ptr = out_ptr + (image * (OH * OW) + first * OW) // V * V
    # Rows above or below the image are those at its border again, for outputs that are not stored: no mask on the rows.
    last_row = tl.minimum(first + ROWS + KH - 2, H - 1)
    nothing = ()
    for _ in tl.static_range(V):
        nothing = nothing + (tl.zeros([N], dtype=tl.float32),)
    sums = ()  # of the unfinished output rows, the oldest first
    for _ in tl.static_range(KH - 1):
        sums = sums + (nothing,)
    head = ()
    for t in tl.static_range(KH - 1):
        head = head + (load_row(x_ptr, tl.minimum(tl.maximum(first + t, 0), last_row), j, H, W, V, WORDS),)
    for t in tl.static_range(KH - 1):
        # The oldest row lies above the strip: what is added to it is dropped.
        sums = add_row(sums, head[t], last, weights, t - KH + 1, V, KH, KW, WORDS)[1:]
    body = ()
    for t in tl.static_range(KH - 1, KH - 1 + ROWS):
        body = body + (load_row(x_ptr, tl.minimum(tl.maximum(first + t, 0), last_row), j, H, W, V, WORDS),)
    for t in tl.static_range(ROWS):
        sums = add_row(sums, body[t], last, weights, t, V, KH, KW, WORDS)
        store_row(strip_ptr, sums[0], t, first + t, j, V, D, L, OH, OW)
        sums = sums[1:]

    if P > 1:
        out_ptr += image * (OH * OW)
        if first <= 0:
            edge(x_ptr, out_ptr, weights, 0, 0, lead * D, W, KH, KW)
        if first + ROWS >= OH:
            s = (lead + OH - 1) % P * D
            edge(x_ptr, out_ptr, weights, OH - 1, L * V + s, V - D - s, W, KH, KW)


@triton.jit
def rolling_kernel(
    x_ptr, w_ptr, out_ptr, C, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS x BLOCK outputs of one (sample, channel) at stride 1, an input row loaded once for all its output rows.

    Results are stored at the end, because no load can be moved before an earlier store (the compiler must assume that
    they overlap) and the loads of all rows shall be in flight together.
    """
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
    """ROWS x BLOCK outputs of one (sample, channel) for any kernel, stride and padding, every tap loaded for itself."""
    strips = tl.cdiv(OH, ROWS)
    image = (tl.program_id(0) // strips).to(tl.int64)
    oh = (tl.program_id(0) % strips).to(tl.int64) * ROWS + tl.arange(0, ROWS)
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
    batch, channels, h, w = x.shape
    _, _, kh, kw = weight.shape
    oh, ow = (h + 2 * p[0] - kh) // s[0] + 1, (w + 2 * p[1] - kw) // s[1] + 1
    out = torch.empty((batch, channels, oh, ow), device=x.device, dtype=x.dtype)
    images = batch * channels
    values = CHUNK_BYTES // x.element_size()
    unrolled = s == (1, 1) and kh * kw <= MOST_TAPS and h * w <= MOST_OFFSET
    aligned = w % values == 0 and x.data_ptr() % CHUNK_BYTES == 0
    if unrolled and aligned and p == (0, 0) and kw in FLAT_WIDTHS and w <= WIDEST:
        period = values // (kw - 1)
        n = triton.next_power_of_2(w // values)
        # Of a period, at most period - gcd rows lie before the image.
        strips = triton.cdiv(oh + period - math.gcd(oh, period), FLAT_ROWS)
        flat_kernel[(images * strips,)](
            x, weight, out, channels, strips, h, w, kh, kw, V=values, N=n, ROWS=FLAT_ROWS,
            WORDS=x.dtype == torch.bfloat16, num_warps=max(1, min(16, n // 32)),
        )  # fmt: skip
    elif unrolled:
        # 15 rows share their loads; 512 columns are 2 a thread.
        rows, block = 15, min(max(32, triton.next_power_of_2(ow)), 512)
        grid = (images * triton.cdiv(oh, rows), triton.cdiv(ow, block))
        rolling_kernel[grid](
            x, weight, out, channels, h, w, oh, ow, kh, kw, *p, ROWS=rows, BLOCK=block, num_warps=max(1, block // 64)
        )
    else:
        rows, block = 4, 256
        grid = (images * triton.cdiv(oh, rows), triton.cdiv(ow, block))
        rows_kernel[grid](x, weight, out, channels, h, w, oh, ow, kh, kw, *s, *p, ROWS=rows, BLOCK=block, num_warps=4)
    return out
