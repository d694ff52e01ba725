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

On sm_90 the study's sizes have a kernel in Gluon (specialised_kernel). All the weights stay in shared memory, single
warps load x and write the zeros by TMA, and two groups of four warps only multiply and store their tiles: the products
wait for no load and for no store of zeros.
"""

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
except (ImportError, AttributeError):  # no Gluon, or not this one: has_specialised_path says so
    gluon = None

Triple = tuple[int, int, int]

# The path for aligned lines. A program computes POSITIONS positions of CHANNELS output channels.
POSITIONS, CHANNELS = 128, 64
PROGRAMS = 264  # two on each multiprocessor of an H200
EARLY_RUNS = 4  # of zeros, that a program writes while the weights are repacked
ZERO_BLOCK, LONGEST_RUN = 2048, 8192  # words of 32 bits

# The path in Gluon, for planes of 32 x 32. Each group of warps has tiles of ROWS rows and a ring of RING stages.
MULTIPROCESSORS = 132  # of an H200, a program on each
ROWS, RING = tl.constexpr(4), tl.constexpr(3)
REGISTERS = tl.constexpr(232)  # of a thread that multiplies
RUNS_EARLY = 4  # of zeros, that a loading warp writes before it loads
RUNS_FIRST = tl.constexpr(14)  # that it writes once x for its first tile is under way
RUNS_A_UNIT = tl.constexpr(2)  # that it writes when a plane of taps was multiplied
STORE = tl.constexpr(".cs")
SIDE, ROW, PLANE = tl.constexpr(32), tl.constexpr(65), tl.constexpr(65 * 65)  # of x; of the output
LINE = tl.constexpr(32)  # words
PAIRS = tl.constexpr(not triton.__version__.startswith("3.5."))  # so warp_specialize takes them


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


def gluon_jit(function: Callable[..., None]) -> Callable[..., None]:
    """gluon.jit, or nothing where there is no Gluon."""
    return gluon.jit(function) if gluon else function


@gluon_jit
def first_word_of_plane(channel, qd, D: tl.constexpr):
    """As first_word."""
    return (channel.to(gl.int64) * ((2 * D + 1) * PLANE) + (qd * 2 + 1) * PLANE + ROW + 1) >> 1


@gluon_jit
def copy_zeros(o_desc, words, zeros, run, runs, D: tl.constexpr):
    """As put_zeros, for one warp: a run is 66 to 68 lines, of which the block of zeros in shared memory is 64.

    No run ends inside a line: the words of 64 channels are whole lines.
    """
    VOLUME: gl.constexpr = (2 * D + 1) * PLANE
    channel = (run // (D + 1)).to(gl.int64)
    qd = run % (D + 1)
    end = (channel + 1) * VOLUME >> 1
    start = gl.where(qd == 0, channel * VOLUME >> 1, first_word_of_plane(channel, qd - 1, D) + SIDE * ROW) & -LINE
    start = gl.multiple_of(start, LINE)
    stop = gl.where(qd == D, end, first_word_of_plane(channel, qd, D)) & -LINE
    if run < runs:
        hopper.tma.async_copy_shared_to_global(o_desc, [(start // LINE).to(gl.int32), 0], zeros)
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])  # a line a store
        at = 64 * LINE + gl.arange(0, 4 * LINE, layout)
        zero = gl.full([4 * LINE], 0, gl.int32, layout)
        gl.store(words + start + at, zero, mask=at < (stop - start).to(gl.int32))


@gluon_jit
def load(
    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early,
    D: tl.constexpr, WHO: tl.constexpr,
):  # fmt: skip
    """One warp: x for the tiles of group WHO; the weights, if WHO is 0; and half of the program's runs of zeros."""
    worker = gl.program_id(0) * 2 + WHO
    workers = gl.num_programs(0) * 2
    run = worker
    for _ in range(early):
        copy_zeros(o_desc, words, zeros, run, runs, D)
        run += workers
    if WHO == 0:  # the other group's first product waits for the weights too
        gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)
    box: gl.constexpr = x_desc.layout
    stage = 0
    phase = 1  # a barrier of a stage that was never full counts as passed
    for tile in range(worker, tiles + workers, workers):  # one more than there are: zeros while the last is multiplied
        h0 = tile % (SIDE // ROWS) * ROWS
        qd = tile // (SIDE // ROWS) % D
        n = tile // (SIDE // ROWS * D)
        for unit in range(3):  # taps in depth
            if WHO == 0:
                if tile == worker:
                    hopper.mbarrier.expect(w_full.index(unit), 9 * 64 * 32 * 2)
                    for i in range(9):  # programs begin at different taps: not all ask for the same lines at once
                        tap = unit * 9 + (i + gl.program_id(0)) % 9
                        hopper.tma.async_copy_global_to_shared(
                            w_desc, [tap * 64, 0], w_full.index(unit), w_taps.index(tap)
                        )
            hopper.mbarrier.wait(empty.index(WHO * RING + stage), phase)
            if tile < tiles:
                bar = full.index(WHO * RING + stage)
                hopper.mbarrier.expect(bar, (ROWS + 2) * 32 * SIDE * 2)
                for two in gl.static_range(ROWS // 2 + 1):
                    part = x_ring.index((WHO * RING + stage) * (ROWS + 2) + two * 2)
                    part = part._reinterpret(x_desc.dtype, [1, 1, 2, 32, SIDE], box)
                    at = [n, qd + 1 - unit, h0 - 1 + two * 2, 0, 0]  # zeros outside of x
                    hopper.tma.async_copy_global_to_shared(x_desc, at, bar, part)
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1
            for _piece in range(gl.where(tile == worker, unit // 2 * RUNS_FIRST, RUNS_A_UNIT)):
                copy_zeros(o_desc, words, zeros, run, runs, D)
                run += workers
    while run < runs:
        copy_zeros(o_desc, words, zeros, run, runs, D)
        run += workers
    hopper.tma.store_wait(0)  # the copies read shared memory, which ends with the program


@gluon_jit
def quarters(x):
    """[64, ROWS * 16] as four of [64, ROWS, 4]: x[:, row, j, t], j = 0..3."""
    x = gl.permute(gl.reshape(x, [64, ROWS, 2, 2, 4]), [0, 1, 4, 2, 3])
    a, b = gl.split(x)
    x0, x2 = gl.split(a)
    x1, x3 = gl.split(b)
    return x0, x1, x2, x3


@gluon_jit
def whole(x0, x1, x2, x3, like):
    """The inverse of quarters, laid out as `like` is."""
    x = gl.permute(gl.join(gl.join(x0, x2), gl.join(x1, x3)), [0, 1, 3, 4, 2])
    return gl.convert_layout(gl.reshape(x, [64, ROWS * 16]), like.type.layout, assert_trivial=True)


@gluon_jit
def of_next_lane(x, after):
    """Of the next lane in four; the last lane has the first's of `after`."""
    return gl.inline_asm_elementwise(
        """
        {
        .reg .pred p;
        .reg .b32 lane, t, word;
        mov.u32 lane, %laneid;
        and.b32 t, lane, 3;
        setp.eq.u32 p, t, 0;
        selp.b32 word, $2, $1, p;
        add.u32 t, t, 1;
        and.b32 t, t, 3;
        and.b32 lane, lane, 28;
        or.b32 lane, lane, t;
        shfl.sync.idx.b32 $0, word, lane, 31, 0xffffffff;
        }
        """,
        "=r,r,r", [x, after], dtype=gl.float32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon_jit
def of_lane_before(x, before):
    """Of the lane before in four; the first lane has the last's of `before`."""
    return gl.inline_asm_elementwise(
        """
        {
        .reg .pred p;
        .reg .b32 lane, t, word;
        mov.u32 lane, %laneid;
        and.b32 t, lane, 3;
        setp.eq.u32 p, t, 3;
        selp.b32 word, $2, $1, p;
        add.u32 t, t, 3;
        and.b32 t, t, 3;
        and.b32 lane, lane, 28;
        or.b32 lane, lane, t;
        shfl.sync.idx.b32 $0, word, lane, 31, 0xffffffff;
        }
        """,
        "=r,r,r", [x, before], dtype=gl.float32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon_jit
def multiply(
    words, x_ring, w_taps, full, empty, w_full, turn, tiles, dtype: tl.constexpr, D: tl.constexpr, WHO: tl.constexpr
):
    """Four warps, group WHO: tiles of ROWS rows of one reached plane and 64 channels.

    The groups multiply in turn, so that one stores while the other multiplies. Group WHO's tile i waits for the tile of
    the group before it in turn, which has as many tiles, or one more; group 0's waits for tile i - 1 of the last group.
    """
    N: gl.constexpr = ROWS * SIDE
    VOLUME: gl.constexpr = (2 * D + 1) * PLANE
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    matrix: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2)
    rows: gl.constexpr = gl.DistributedLinearLayout(  # a warp has whole rows, a lane one position of each
        reg_bases=[[0, 32], [0, 64], [1, 0], [2, 0], [4, 0], [8, 0]],
        lane_bases=[[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, N],
    )
    co = gl.arange(0, 64, gl.SliceLayout(1, rows))[:, None]
    row = gl.arange(0, N, gl.SliceLayout(0, rows))[None, :] // SIDE
    shift = (1 - (co & 1)) * 16
    worker = gl.program_id(0) * 2 + WHO
    workers = gl.num_programs(0) * 2
    stage = 0
    phase = 0
    turn_phase = 1 if WHO == 0 else 0  # the first turn is group 0's: a barrier without arrivals counts as passed
    for tile in range(worker, tiles, workers):
        h0 = tile % (SIDE // ROWS) * ROWS
        qd = tile // (SIDE // ROWS) % D
        n = tile // (SIDE // ROWS * D)
        left = gl.full([64, N], 0.0, gl.float32, mma)
        centre = gl.full([64, N], 0.0, gl.float32, mma)
        right = gl.full([64, N], 0.0, gl.float32, mma)
        hopper.mbarrier.wait(turn.index(WHO), turn_phase)
        turn_phase ^= 1
        for unit in range(3):  # taps in depth
            hopper.mbarrier.wait(w_full.index(unit), 0)  # only the first tile waits
            hopper.mbarrier.wait(full.index(WHO * RING + stage), phase)
            for kh in gl.static_range(3):
                x = x_ring.index((WHO * RING + stage) * (ROWS + 2) + 2 - kh)._reinterpret(dtype, [32, N], matrix)
                tap = unit * 9 + kh * 3
                left = hopper.warpgroup_mma(w_taps.index(tap), x, left, is_async=True)
                centre = hopper.warpgroup_mma(w_taps.index(tap + 1), x, centre, is_async=True)
                right = hopper.warpgroup_mma(w_taps.index(tap + 2), x, right, is_async=True)
            hopper.mbarrier.arrive(turn.index(1 - WHO), count=1, pred=unit == 2)  # theirs queue behind these
            left, centre, right = hopper.warpgroup_mma_wait(num_outstanding=0, deps=[left, centre, right])
            gl.thread_barrier()  # all four warps have read the stage
            hopper.mbarrier.arrive(empty.index(WHO * RING + stage), count=1)
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1
        # Position w is the sum of left[w + 1], centre[w] and right[w - 1], as in put_lines. Of a row a thread has the
        # positions 8j + 2t and 8j + 2t + 1, t its lane in four, j = 0..3: what it lacks is a neighbouring lane's.
        left_even, left_odd = gl.split(gl.reshape(left, [64, N // 2, 2]))
        even, odd = gl.split(gl.reshape(centre, [64, N // 2, 2]))
        right_even, right_odd = gl.split(gl.reshape(right, [64, N // 2, 2]))
        even += left_odd
        odd += right_even
        e0, e1, e2, e3 = quarters(left_even)
        none = gl.zeros_like(e0)
        odd += whole(of_next_lane(e0, e1), of_next_lane(e1, e2), of_next_lane(e2, e3), of_next_lane(e3, none), odd)
        o0, o1, o2, o3 = quarters(right_odd)
        even += whole(
            of_lane_before(o0, none), of_lane_before(o1, o0), of_lane_before(o2, o1), of_lane_before(o3, o2), even
        )
        acc = gl.convert_layout(gl.reshape(gl.join(even, odd), [64, N]), mma, assert_trivial=True)
        value = gl.convert_layout(acc.to(dtype).to(gl.int16, bitcast=True), rows)
        word = (value.to(gl.int32) & 0xFFFF) << shift
        start = ((co * VOLUME + ((qd * 2 + 1) * PLANE + ROW + 1)) >> 1) + (h0 + row) * ROW
        sample = words + n.to(gl.int64) * (32 * VOLUME)
        # A piece of assembly for each row of a warp, so that no address or word is kept for long: the two lines of
        # put_lines, or three, of which lane l has word l.
        gl.inline_asm_elementwise(
            """
            {
            .reg .pred p;
            .reg .b32 lane, skew, from, word, at;
            .reg .b64 ptr;
            mov.u32 lane, %laneid;
            and.b32 skew, $2, 31;
            sub.s32 from, lane, skew;
            shfl.sync.idx.b32 word, $1, from, 31, 0xffffffff;
            sub.s32 at, $2, skew;
            add.s32 at, at, lane;
            mad.wide.s32 ptr, at, 4, $3;
            setp.lt.s32 p, lane, skew;
            selp.b32 at, 0, word, p;
            st.global"""
            + STORE
            + """.b32 [ptr], at;
            selp.b32 at, word, 0, p;
            st.global"""
            + STORE
            + """.b32 [ptr+128], at;
            setp.eq.s32 p, skew, 31;
            mov.b32 at, 0;
            @p st.global"""
            + STORE
            + """.b32 [ptr+256], at;
            mov.b32 $0, 0;
            }
            """,
            "=r,r,r,l", [word, start, sample.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@gluon_jit
def multiply_first(words, x_ring, w_taps, full, empty, w_full, turn, tiles, dtype: tl.constexpr, D: tl.constexpr):
    multiply(words, x_ring, w_taps, full, empty, w_full, turn, tiles, dtype, D, 0)


@gluon_jit
def multiply_second(
    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D: tl.constexpr
):
    multiply(words, x_ring, w_taps, full, empty, w_full, turn, tiles, x_desc.dtype, D, 1)


@gluon_jit
def load_first(
    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D: tl.constexpr
):
    load(x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D, 0)


@gluon_jit
def load_second(
    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D: tl.constexpr
):
    load(x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D, 1)


@gluon_jit
def specialised_kernel(x_desc, w_desc, o_desc, words, tiles, runs, early, D: tl.constexpr):
    """Two groups of four warps that multiply and store, each with a warp that loads x for it and writes zeros.

    x_desc: x as (batch, D, height, C_in, width), in boxes of two rows; w_desc: (taps * C_out, C_in); o_desc: the output
    in lines. A stage of the ring is ROWS + 2 rows of x, [C_in, width] each.
    """
    matrix: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2)
    x_ring = gl.allocate_shared_memory(x_desc.dtype, [2 * RING * (ROWS + 2), 32, SIDE], matrix)
    w_taps = gl.allocate_shared_memory(x_desc.dtype, [27, 64, 32], w_desc.layout)
    zeros = gl.allocate_shared_memory(gl.int32, [64, LINE], o_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [2 * RING, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2 * RING, 1], hopper.mbarrier.MBarrierLayout())
    w_full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(2 * RING):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(3):
        hopper.mbarrier.init(w_full.index(i), count=1)
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        hopper.mbarrier.init(turn.index(i), count=1)
    zeros.store(gl.full([64, LINE], 0, gl.int32, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])))
    hopper.fence_async_shared()  # each thread's zeros, before any copy reads them
    gl.thread_barrier()
    if PAIRS:
        gl.warp_specialize(
            [
                (multiply_first, (
                    words, x_ring, w_taps, full, empty, w_full, turn, tiles, x_desc.dtype, D,
                )),
                (multiply_second, (
                    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs,
                    early, D,
                )),
                (load_first, (
                    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs,
                    early, D,
                )),
                (load_second, (
                    x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs,
                    early, D,
                )),
            ],
            [4, 1, 1], [REGISTERS, 40, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            (words, x_ring, w_taps, full, empty, w_full, turn, tiles, x_desc.dtype, D), multiply_first,
            (x_desc, w_desc, o_desc, words, x_ring, w_taps, zeros, full, empty, w_full, turn, tiles, runs, early, D),
            [multiply_second, load_first, load_second],
            [4, 1, 1], [REGISTERS, 40, 40],
        )  # fmt: skip


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


def has_specialised_path(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether convolve_specialised can do what convolve_lines can: as compiled by Triton 3.5 or 3.6 for sm_90."""
    return (
        gluon is not None and triton.__version__.startswith(("3.5.", "3.6."))
        and x.device.type != "cpu" and not triton.knobs.runtime.interpret
        and triton.runtime.driver.active.get_current_target().arch == 90
        and x.dtype in (torch.bfloat16, torch.float16)
        and tuple(weight.shape[:2]) == (32, 64) and tuple(x.shape[3:]) == (SIDE.value, SIDE.value)
        and x.data_ptr() % 16 == 0  # the copies demand it
    )  # fmt: skip


def convolve_specialised(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """As convolve_lines, for 32 channels of 32 x 32 to 64 channels."""
    batch, c_in, depth, height, width = x.shape
    c_out = weight.shape[1]
    packed = torch.empty((27 * c_out, c_in), device=x.device, dtype=x.dtype)
    repack_weights_kernel[(27, c_out // 16, 1)](
        weight, packed, C_IN=c_in, C_OUT=c_out, BLOCK_K=c_in, BLOCK_N=16, PDL=True, num_warps=4
    )
    box, matrix = (gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=rank) for rank in (5, 2))
    lines = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    words = out.view(-1).view(torch.int32)
    plane = height * width
    x_shape, x_strides = [batch, depth, height, c_in, width], [c_in * depth * plane, plane, width, depth * plane, 1]
    tiles = batch * depth * (height // ROWS.value)
    runs = batch * c_out * (depth + 1)
    specialised_kernel[(min(MULTIPROCESSORS, triton.cdiv(tiles, 2)),)](
        TensorDescriptor(x, x_shape, x_strides, [1, 1, 2, c_in, width], box),
        TensorDescriptor(packed, [27 * c_out, c_in], [c_in, 1], [c_out, c_in], matrix),
        TensorDescriptor(words, [words.numel() // LINE.value, LINE.value], [LINE.value, 1], [64, LINE.value], lines),
        words, tiles, runs, min(RUNS_EARLY, runs // (2 * MULTIPROCESSORS)), D=depth, num_warps=4, launch_pdl=True,
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
        if has_specialised_path(x, weight):
            convolve_specialised(x, weight, out)
        else:
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
