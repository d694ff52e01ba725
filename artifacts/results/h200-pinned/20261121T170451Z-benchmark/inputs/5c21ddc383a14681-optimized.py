"""3D transposed convolution that computes only the outputs that can differ from zero.

o = stride*i - padding + dilation*k. With g = gcd(stride, dilation), o is congruent to -padding mod g: of stride 2 and
dilation 2 only every second o in each dimension is ever reached, 1 position in 8. Let o = g*q + r, r = -padding mod g;
then q obeys the same equation with stride/g, dilation/g and padding (padding + r)/g, and for the study's problem it is
a dense convolution. (Where g is 1 nothing shrinks and the same code is a general transposed convolution.)

The general path has four kernels: x and the weights are repacked so that channels are contiguous, an implicit GEMM
[positions x C_in] @ [C_in x C_out] sums the taps and stores whole rows, zeros interleaved, and the last writes zeros to
the rows that are never reached.

Every output is written once, and for the study's problem these writes, 285 MB of which 88 % are zeros, are the
floor. So 16-bit problems of that kind (kernel 3, stride 2, padding 1, dilation 2) have a path of their own, which
does everything in one kernel (after a small one that repacks the weights): it reads x as it is, and it writes the
output as aligned lines, each of them whole and from one warp, although no row of the output is aligned. See put_lines.
"""

import math

import torch
import triton
import triton.language as tl

Triple = tuple[int, int, int]

# The path for aligned lines. A program computes POSITIONS positions of CHANNELS output channels.
POSITIONS, CHANNELS = 128, 64
PROGRAMS = 264  # two on each multiprocessor of an H200
EARLY_RUNS = 4  # of zeros, that a program writes while the weights are repacked
ZERO_BLOCK, LONGEST_RUN = 2048, 8192  # words of 32 bits


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


@triton.jit
def first_word(channel, qd, OUT: tl.constexpr):
    """The 32-bit word of the output that holds the first value of plane od = 2*qd + 1 of channel n*C_OUT + co.

    All sizes in OUT are odd. Row (od, oh), od and oh odd, starts at an element whose parity is the channel's, and its
    values are at the odd ow: so a word holds one value and one zero, and which half is the value is the channel's too.
    """
    start = channel.to(tl.int64) * (OUT[0] * OUT[1] * OUT[2]) + (qd * 2 + 1) * (OUT[1] * OUT[2]) + OUT[2]
    return (start + 1) >> 1


@triton.jit
def put_zeros(words, run, stop_run, runs, SIZE: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr):
    """If run < stop_run: zeros before reached plane run % (D+1) of channel run // (D+1), or after its last plane.

    A run begins and ends at lines of W words, as put_lines does.
    """
    D: tl.constexpr = SIZE[0]
    W: tl.constexpr = SIZE[2]
    VOLUME: tl.constexpr = OUT[0] * OUT[1] * OUT[2]
    LONGEST: tl.constexpr = (OUT[1] * OUT[2] + OUT[2]) // 2 + 1 + W
    channel = (run // (D + 1)).to(tl.int64)
    qd = run % (D + 1)
    end = (channel + 1) * VOLUME >> 1
    start = tl.where(qd == 0, channel * VOLUME >> 1, first_word(channel, qd - 1, OUT) + SIZE[1] * OUT[2]) & -W
    stop = tl.where(qd == D, end, first_word(channel, qd, OUT)) & -W
    size = tl.where(run < stop_run, (stop - start).to(tl.int32), 0)
    quad = tl.arange(0, BLOCK // 4)[:, None] * 4
    lane = tl.arange(0, 4)[None, :]
    base = words + tl.multiple_of(start, W)
    zero = tl.zeros([BLOCK // 4, 4], dtype=tl.int32)
    for at in tl.static_range(0, LONGEST, BLOCK):
        tl.store(base + (quad + at + lane), zero, mask=(quad + at < size) & (lane >= 0))
    if (run < stop_run) & (run == runs - 1):  # the output may end inside a line
        rest = tl.arange(0, W)
        tl.store(words + stop + rest, tl.zeros([W], dtype=tl.int32), mask=rest < end - stop)


@triton.jit
def put_lines(
    words, left, centre, right, dtype: tl.constexpr, n, co0, qd, h0,
    C_OUT: tl.constexpr, SIZE: tl.constexpr, OUT: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows h0.. of plane od = 2*qd + 1, BLOCK_N channels, and the zeros up to the next reached row.

    Position w is the sum of left[w + 1], centre[w] and right[w - 1], where those are in the row: of two positions, 2m
    and 2m + 1, each needs one sum of the other and one of the next or previous two.

    A row is W words with values, then W + 1 of zeros, and starts skew words into a line (W words, aligned). Rotated by
    skew, it is the content of this line from there on and of the next line up to there; the other words of both are
    zeros. The next row starts two lines further, or three if skew is W - 1, the line between being zeros. Thus every
    line is stored whole, which spares the L2 cache merging the ends of rows.
    """
    HALF: tl.constexpr = SIZE[2] // 2
    W: tl.constexpr = SIZE[2]
    VOLUME: tl.constexpr = OUT[0] * OUT[1] * OUT[2]
    SAMPLE: tl.constexpr = C_OUT // 2 * VOLUME
    TILE: tl.constexpr = BLOCK_N * ROWS
    row = tl.arange(0, TILE)
    co = co0 + row // ROWS
    h = h0 + row % ROWS
    start = ((co * VOLUME + (qd * 2 + 1) * (OUT[1] * OUT[2]) + OUT[2] + 1) >> 1) + h * OUT[2]
    skew = (start + n * (SAMPLE % W)) & (W - 1)
    m = tl.arange(0, HALF)[None, :]
    left_even, left_odd = tl.split(tl.reshape(left, (TILE, HALF, 2)))
    even, odd = tl.split(tl.reshape(centre, (TILE, HALF, 2)))
    right_even, right_odd = tl.split(tl.reshape(right, (TILE, HALF, 2)))
    left_even = tl.gather(left_even, tl.broadcast_to((m + 1) % HALF, (TILE, HALF)), 1)
    right_odd = tl.gather(right_odd, tl.broadcast_to((m + HALF - 1) % HALF, (TILE, HALF)), 1)
    even = (even + left_odd) + tl.where(m > 0, right_odd, 0.0)  # the first sum where the dots have left them
    odd = (odd + right_even) + tl.where(m < HALF - 1, left_even, 0.0)
    pair = even.to(dtype).to(tl.uint16, bitcast=True).to(tl.uint32)
    pair |= odd.to(dtype).to(tl.uint16, bitcast=True).to(tl.uint32) << 16
    q = (2 * m - skew[:, None]) & (W - 1)  # word 2m of the rotated row is position q
    next_q = (q + 1) & (W - 1)
    bits = tl.join(
        tl.gather(pair, q // 2, 1) >> (q % 2 * 16).to(tl.uint32),
        tl.gather(pair, next_q // 2, 1) >> (next_q % 2 * 16).to(tl.uint32),
    )
    bits = tl.reshape(bits, (TILE, W)) & 0xFFFF
    bits = (bits << ((1 - (co & 1)) * 16).to(tl.uint32)[:, None]).to(tl.int32, bitcast=True)
    zero = tl.zeros_like(bits)
    w = tl.arange(0, W)[None, :]
    inside = ((h < SIZE[1]) & (co < C_OUT))[:, None] & (w >= 0)
    aligned: tl.constexpr = 2 - SAMPLE % 2  # words; the line is by W, but a thread has two words of it
    line = words + n.to(tl.int64) * SAMPLE + (tl.multiple_of(start - skew, aligned)[:, None] + w)
    tl.store(line, tl.where(w < skew[:, None], zero, bits), mask=inside, cache_modifier=".cs")
    tl.store(line + W, tl.where(w < skew[:, None], bits, zero), mask=inside, cache_modifier=".cs")
    tl.store(line + 2 * W, zero, mask=inside & (skew == W - 1)[:, None], cache_modifier=".cs")


@triton.jit
def repack_weights_kernel(
    w_ptr, packed_ptr, C_IN: tl.constexpr, C_OUT: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """packed[tap, co, ci] = w[ci, co, tap]."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    tap, taps = tl.program_id(0), tl.num_programs(0)
    co = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    ci = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    w = tl.load(w_ptr + (ci * C_OUT + co) * taps + tap, mask=(co < C_OUT) & (ci < C_IN))
    tl.store(packed_ptr + (tap * C_OUT + co) * C_IN + ci, w, mask=(co < C_OUT) & (ci < C_IN))


@triton.jit
def lines_kernel(
    x_ptr, w_ptr, words, tiles, runs, early, each, dtype: tl.constexpr,
    C_IN: tl.constexpr, C_OUT: tl.constexpr, SIZE: tl.constexpr, OUT: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ZERO_BLOCK: tl.constexpr, RUNS_A_STEP: tl.constexpr,
    UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Tiles of ROWS rows of one reached plane and BLOCK_N channels; and the runs of zeros between planes.

    w: (taps, C_OUT, C_IN). The positions of the tile are neighbours in x as it is, [C_in, positions], for the taps of
    the middle column. The taps of the other columns read the same x and are summed apart: put_lines shifts those sums.

    Both loops become one, so that the first loads for a tile are under way while the tile before it is stored.
    """
    PLANE: tl.constexpr = SIZE[1] * SIZE[2]
    BLOCK_M: tl.constexpr = ROWS * SIZE[2]
    tiles_h: tl.constexpr = (SIZE[1] + ROWS - 1) // ROWS
    tiles_n: tl.constexpr = (C_OUT + BLOCK_N - 1) // BLOCK_N
    chunks: tl.constexpr = C_IN // BLOCK_K
    program, programs = tl.program_id(0), tl.num_programs(0)

    # Writes of zeros come while there are no weights yet, and between the steps of the sums: memory is never idle.
    run = program
    for _ in range(early):
        put_zeros(words, run, runs, runs, SIZE, OUT, ZERO_BLOCK)
        run += programs
    if PDL:
        tl.extra.cuda.gdc_wait()

    at_m = tl.arange(0, BLOCK_M)
    at_n = tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    for tile in tl.range(program, tiles, programs, flatten=True):
        left = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
        centre = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
        right = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
        h0 = tile % tiles_h * ROWS
        qd = tile // tiles_h % SIZE[0]
        co0 = tile // (tiles_h * SIZE[0]) % tiles_n * BLOCK_N
        n = tile // (tiles_h * SIZE[0] * tiles_n)
        for step in tl.range(9 * chunks):
            tap = step // chunks  # of the 9 in depth and height
            ci = step % chunks * BLOCK_K + at_k
            z = qd + 1 - tap // 3
            m = (h0 + 1 - tap % 3) * SIZE[2] + at_m
            inside = (z >= 0) & (z < SIZE[0]) & (m >= 0) & (m < PLANE)
            x_at = (ci * (SIZE[0] * PLANE))[:, None] + (z * PLANE + m)[None, :]
            x_sample = x_ptr + n.to(tl.int64) * (C_IN * SIZE[0] * PLANE)
            x = tl.load(x_sample + x_at, mask=inside[None, :], other=0.0)
            w_at = w_ptr + (tap * 3 * C_OUT + co0 + at_n)[:, None] * C_IN + ci[None, :]
            w0 = tl.load(w_at)
            w1 = tl.load(w_at + C_OUT * C_IN)
            w2 = tl.load(w_at + 2 * C_OUT * C_IN)
            if UPCAST:
                x, w0, w1, w2 = x.to(tl.float32), w0.to(tl.float32), w1.to(tl.float32), w2.to(tl.float32)
            left = tl.dot(w0, x, left)
            centre = tl.dot(w1, x, centre)
            right = tl.dot(w2, x, right)
            start = early * programs + tile * each
            stop = tl.minimum(start + each, runs)
            for i in tl.static_range(RUNS_A_STEP):
                put_zeros(words, start + step * RUNS_A_STEP + i, stop, runs, SIZE, OUT, ZERO_BLOCK)
        put_lines(words, left, centre, right, dtype, n, co0, qd, h0, C_OUT, SIZE, OUT, ROWS, BLOCK_N)


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


def has_lines_path(x: torch.Tensor, weight: torch.Tensor, stride: Triple, padding: Triple, dilation: Triple) -> bool:
    """Whether convolve_lines can do it."""
    c_in, c_out = weight.shape[:2]
    _, height, width = x.shape[2:]
    out = math.prod(2 * size + 1 for size in x.shape[2:])
    return (
        x.element_size() == 2 and x.dtype == weight.dtype and x.numel() > 0
        and triple(weight.shape[2:]) == (3, 3, 3)
        and (stride, padding, dilation) == ((2, 2, 2), (1, 1, 1), (2, 2, 2))
        and c_in > 0 and c_in % 16 == 0 and c_out > 0 and c_out % 2 == 0
        and width in (8, 16, 32, 64) and height * width % 16 == 0
        and (height + 1) * (2 * width + 1) + width < LONGEST_RUN
        and max(c_in, c_out) * out < 2**31
    )  # fmt: skip


def has_pdl(x: torch.Tensor) -> bool:
    """Whether a kernel can start before the one before it in the stream has ended (sm_90 and later)."""
    return x.device.type != "cpu" and triton.runtime.driver.active.get_current_target().arch >= 90


def convolve_lines(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Kernel 3, stride 2, padding 1, dilation 2."""
    batch, c_in = x.shape[:2]
    c_out = weight.shape[1]
    size, full = triple(x.shape[2:]), triple(out.shape[2:])
    pdl = has_pdl(x)
    block_k = 32 if c_in % 32 == 0 else 16
    packed = torch.empty((27 * c_out + CHANNELS, c_in), device=x.device, dtype=x.dtype)  # tiles may end past C_OUT
    repack_weights_kernel[(27, triton.cdiv(c_out, 16), triton.cdiv(c_in, 32))](
        weight, packed, C_IN=c_in, C_OUT=c_out, BLOCK_K=32, BLOCK_N=16, PDL=pdl, num_warps=4
    )
    rows = POSITIONS // size[2]
    tiles = batch * triton.cdiv(c_out, CHANNELS) * size[0] * triton.cdiv(size[1], rows)
    programs = min(tiles, PROGRAMS)
    runs = batch * c_out * (size[0] + 1)
    early = min(EARLY_RUNS, runs // programs)
    each = triton.cdiv(runs - early * programs, tiles)
    lines_kernel[(programs,)](
        x, packed, out.view(-1).view(torch.int32), tiles, runs, early, each,
        dtype=tl.bfloat16 if x.dtype == torch.bfloat16 else tl.float16,
        C_IN=c_in, C_OUT=c_out, SIZE=size, OUT=full, ROWS=rows, BLOCK_N=CHANNELS, BLOCK_K=block_k,
        ZERO_BLOCK=ZERO_BLOCK,
        RUNS_A_STEP=triton.cdiv(each, 9 * c_in // block_k), UPCAST=x.device.type == "cpu",
        PDL=pdl, num_warps=4, num_stages=3, **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip


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
    if has_lines_path(x, weight, s, p, d):
        convolve_lines(x, weight, out)
        return out

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
