"""KernelBench level 3, problem 43: causal self-attention as minGPT writes it, hand-written in Triton.

Two products with their biases and, between them, flash attention, which never writes the scores. fp16 has TF32's ten
bits of mantissa at twice its rate; what is multiplied is scaled by powers of two, which is exact, so that nothing
leaves fp16's range, and sums are fp32. Rows of x get scales of their own in a short pass, which also takes their
largest norm: times that of the weight's rows it bounds q, k and v, and so gives one scale for them, and for the
attention's result. The scaled weights are kept until a parameter changes. The mask is the causal one that the
constructor registers.

On sm_90 the products are in Gluon: one warp loads both operands by TMA into a ring of stages, and two groups of four
warps take turns: one multiplies while the other finishes and writes its tile.

Floor: 0.36 TFLOP at fp16 peak, 0.37 ms on an H200. Bound by the tensor cores in the first product and by its writes in
the second; by the softmax between the small products of the attention. Counters of ncu (H200, torch 2.11 and Triton
3.6, which is not the pinned stack; ATTENTION 64, 64, 4, 3; of peak: memory, L2, tensor cores; then warps):
half_rows_kernel 0.08 ms, 75 %, 88 %, 0 %, 39 %; specialised_kernel 0.38 ms, 23 %, 76 %, 91 %, 19 %; attention_kernel
0.28 ms, 30 %, 56 %, 31 %, 24 %; specialised_kernel 0.19 ms, 34 %, 71 %, 66 %, 19 %.
Designs in ms, same machine: this one 0.777; ATTENTION with keys in blocks of 64 0.817, with two stages 0.788; with 128
queries 0.860 to 0.924; products in Triton 0.881.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
except (ImportError, AttributeError):  # no Gluon, or not this one: has_specialised_path says so
    gluon = None

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
ATTENTION = {"BLOCK_Q": 64, "BLOCK_T": 32, "num_warps": 4, "num_stages": 3}

# The path in Gluon, for sm_90: tiles of 128 x 128, a depth of 64 a stage.
MULTIPROCESSORS = 132  # of an H100 or H200, a program on each
RING = tl.constexpr(6)  # stages, 192 KB
REGISTERS = tl.constexpr(232)  # of a thread that multiplies
PAIRS = tl.constexpr(not triton.__version__.startswith("3.5."))  # so warp_specialize takes them


@triton.jit
def power(exponent):
    """2^exponent for -126 <= exponent <= 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exponent_of(x):
    """floor(log2(x)) of a positive x, but at least -112 and at most 126."""
    return tl.minimum(tl.maximum((x.to(tl.int32, bitcast=True) >> 23) - 127, -112), 126)


@triton.jit
def half_rows_kernel(
    x_ptr, out_ptr, scale_ptr, norm_ptr, rows, depth, ROWS: tl.constexpr, BLOCK: tl.constexpr, TURNED: tl.constexpr
):  # fmt: skip
    """out = x (rows, depth) / scale in fp16, scale a power of two that puts a row's largest element near 2^14.

    norm: the largest norm of a row, by an atomic maximum of its bits, or none. TURNED: in each 32 rows, row 8 q + 2 j +
    b (b = 0, 1) goes to 8 j + 2 q + b. Of a product with such a weight a thread has eight neighbouring features of a
    row, not four times two.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * depth + column[None, :]
    inside = (row < rows)[:, None] & (column < depth)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    exponent = exponent_of(tl.max(tl.abs(x), axis=1))
    x *= power(14 - exponent)[:, None]
    down = power(exponent - 14)
    place = row
    if TURNED:
        place = row // 32 * 32 + row % 8 // 2 * 8 + row % 32 // 8 * 2 + row % 2
    tl.store(out_ptr + place[:, None] * depth + column[None, :], x.to(tl.float16), mask=inside)
    tl.store(scale_ptr + row, down, mask=row < rows)
    norm = tl.sqrt(tl.sum(x * x, axis=1)) * down
    norm = tl.max(tl.where(norm < float("inf"), norm, 0.0), axis=0)
    tl.atomic_max(norm_ptr, norm.to(tl.int32, bitcast=True))


@triton.jit
def linear_kernel(
    x_desc, weight_desc, x_scale_ptr, weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, rows,
    features, depth,
    HALF: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x weight^T * scales + bias, x (rows, depth), weight (features, depth).

    HALF: out in fp16, over a scale (stored) that holds for all of it, from the largest norms of the rows of x and of
    weight and from the largest bias; x has a scale a row. Otherwise out is fp32, and x has one scale. Grid: feature
    blocks fastest; the weight stays in the L2 cache, x is streamed.
    """
    n_blocks = tl.cdiv(features, BLOCK_N)
    first_m = tl.program_id(0) // n_blocks * BLOCK_M
    first_n = tl.program_id(0) % n_blocks * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(depth > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    for start in range(0, depth, BLOCK_K):
        x = x_desc.load([first_m, start])
        weight = weight_desc.load([first_n, start])
        acc = tl.dot(x, tl.trans(weight), acc)

    m = first_m + tl.arange(0, BLOCK_M)
    n = first_n + tl.arange(0, BLOCK_N)
    known = n < features
    out_ptrs = out_ptr + m.to(tl.int64)[:, None] * features + n[None, :]
    inside = (m < rows)[:, None] & known[None, :]
    weight_scale = tl.load(weight_scale_ptr + n, mask=known, other=0.0)
    bias = tl.load(bias_ptr + n, mask=known, other=0.0)
    if HALF:
        bound = tl.load(norm_ptr).to(tl.float32, bitcast=True) * tl.load(bound_ptr) + tl.load(bound_ptr + 1)
        exponent = exponent_of(bound) - 14
        if tl.program_id(0) == 0:
            tl.store(scale_ptr, power(exponent))
        acc *= tl.load(x_scale_ptr + m, mask=m < rows, other=0.0)[:, None]
        acc = acc * (weight_scale * power(-exponent))[None, :] + (bias * power(-exponent))[None, :]
        tl.store(out_ptrs, acc.to(tl.float16), mask=inside)
    else:
        acc = acc * (weight_scale * tl.load(x_scale_ptr))[None, :] + bias[None, :]
        tl.store(out_ptrs, acc, mask=inside)


@triton.jit
def attend(
    q1, q2, acc1, acc2, largest, total, k_ptrs, m, first, last, length, width, factor,
    MASKED: tl.constexpr, D: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Adds the keys and values from first to last to the sums of attention_kernel."""
    t = tl.arange(0, BLOCK_T)
    d1 = tl.arange(0, D1)
    d2 = D1 + tl.arange(0, D2)
    for start in tl.range(first, last, BLOCK_T):
        row_ptrs = k_ptrs + (start + t)[:, None] * (3 * width)
        if MASKED:
            known = (start + t < length)[:, None]
            k1 = tl.load(row_ptrs + d1[None, :], mask=known, other=0.0)
            k2 = tl.load(row_ptrs + d2[None, :], mask=known & (d2 < D)[None, :], other=0.0)
            v1 = tl.load(row_ptrs + (width + d1)[None, :], mask=known, other=0.0)
            v2 = tl.load(row_ptrs + (width + d2)[None, :], mask=known & (d2 < D)[None, :], other=0.0)
        else:
            k1 = tl.load(row_ptrs + d1[None, :])
            k2 = tl.load(row_ptrs + d2[None, :], mask=(d2 < D)[None, :], other=0.0)
            v1 = tl.load(row_ptrs + (width + d1)[None, :])
            v2 = tl.load(row_ptrs + (width + d2)[None, :], mask=(d2 < D)[None, :], other=0.0)
        scores = tl.dot(q1, tl.trans(k1))
        scores = tl.dot(q2, tl.trans(k2), scores)
        if MASKED:
            scores = tl.where(m[:, None] >= start + t[None, :], scores, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp2((scores - new_largest[:, None]) * factor)  # 1 at most: the difference of products would not be
        fade = tl.exp2((largest - new_largest) * factor)
        total = total * fade + tl.sum(p, axis=1)
        largest = new_largest
        p = p.to(tl.float16)
        acc1 = tl.dot(p, v1, acc1 * fade[:, None])
        acc2 = tl.dot(p, v2, acc2 * fade[:, None])
    return acc1, acc2, largest, total


@triton.jit
def attention_kernel(
    qkv_ptr, scale_ptr, out_ptr, length, heads, factor,
    D: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Causal attention of a block of queries of one head, out as qkv over its scale.

    qkv: (batch * length, 3 * heads * D), out: (batch * length, heads * D), fp16. The head dimension is taken in two
    pieces, D1 and D2, powers of two, the first without padding. Grid: batch * heads * query blocks, query blocks
    fastest and longest rows first.
    """
    blocks = tl.cdiv(length, BLOCK_Q)
    first = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_Q
    head = tl.program_id(0) // blocks % heads
    row0 = (tl.program_id(0) // blocks // heads).to(tl.int64) * length
    width = heads * D
    scale = tl.load(scale_ptr)
    factor = tl.maximum(factor * scale * scale, 1e-37)  # 0 times a masked score is no number
    m = first + tl.arange(0, BLOCK_Q)
    d1 = tl.arange(0, D1)
    d2 = D1 + tl.arange(0, D2)
    q_ptrs = qkv_ptr + (row0 + m)[:, None] * (3 * width) + head * D
    inside = (m < length)[:, None]
    q1 = tl.load(q_ptrs + d1[None, :], mask=inside, other=0.0)
    q2 = tl.load(q_ptrs + d2[None, :], mask=inside & (d2 < D)[None, :], other=0.0)
    acc1 = tl.zeros((BLOCK_Q, D1), dtype=tl.float32)
    acc2 = tl.zeros((BLOCK_Q, D2), dtype=tl.float32)
    largest = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    k_ptrs = qkv_ptr + row0 * (3 * width) + width + head * D
    acc1, acc2, largest, total = attend(q1, q2, acc1, acc2, largest, total, k_ptrs, m, 0, first, length, width, factor,
                                        False, D, D1, D2, BLOCK_T)  # fmt: skip
    last = tl.minimum(first + BLOCK_Q, length)
    acc1, acc2, largest, total = attend(q1, q2, acc1, acc2, largest, total, k_ptrs, m, first, last, length, width,
                                        factor, True, D, D1, D2, BLOCK_T)  # fmt: skip
    share = (1.0 / total)[:, None]
    out_ptrs = out_ptr + (row0 + m)[:, None] * width + head * D
    tl.store(out_ptrs + d1[None, :], (acc1 * share).to(tl.float16), mask=inside)
    tl.store(out_ptrs + d2[None, :], (acc2 * share).to(tl.float16), mask=inside & (d2 < D)[None, :])


def gluon_jit(function: Callable[..., None]) -> Callable[..., Any]:
    """gluon.jit, or nothing where there is no Gluon."""
    return gluon.jit(function) if gluon else function


@gluon_jit
def natural(acc):
    """[64, 128] as the tensor cores leave it, in the order of the features (see half_rows_kernel): a thread has eight
    neighbours of a row."""
    layout: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [0, 32], [0, 64], [8, 0]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 128],
    )
    acc = gl.reshape(gl.permute(gl.reshape(acc, [64, 4, 4, 4, 2]), [0, 1, 3, 2, 4]), [64, 128])
    return gl.convert_layout(acc, layout, assert_trivial=True)


@gluon_jit
def finish(
    acc, first_m, first_n, rows, features: tl.constexpr, x_scale_ptr, weight_scale_ptr, bias_ptr, factor, up, out_ptr,
    HALF: tl.constexpr,
):  # fmt: skip
    """All that comes after the product, of which acc holds 64 rows: times scales and factor, plus bias times up."""
    acc = natural(acc)
    like: gl.constexpr = acc.type.layout
    m = first_m + gl.arange(0, 64, gl.SliceLayout(1, like))
    n = first_n + gl.arange(0, 128, gl.SliceLayout(0, like))
    at = m.to(gl.int64)[:, None] * features + n[None, :]
    if HALF:
        acc = acc * gl.load(x_scale_ptr + m, mask=m < rows, other=0.0)[:, None]
    acc = acc * (gl.load(weight_scale_ptr + n) * factor)[None, :] + (gl.load(bias_ptr + n) * up)[None, :]
    gl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=(m < rows)[:, None])


@gluon_jit
def load(x_desc, weight_desc, x_ring, weight_ring, full, empty, rows, features: tl.constexpr, depth: tl.constexpr):
    """One warp: the operands, for one group and the other by turns."""
    n_blocks = features // 128
    stage = 0
    phase = 1  # a barrier of a stage that was never full counts as passed
    for tile in range(gl.program_id(0), gl.cdiv(rows, 128) * n_blocks, gl.num_programs(0)):
        for k in range(0, depth, 64):
            hopper.mbarrier.wait(empty.index(stage), phase)
            bar = full.index(stage)
            hopper.mbarrier.expect(bar, 2 * 128 * 64 * 2)
            hopper.tma.async_copy_global_to_shared(x_desc, [tile // n_blocks * 128, k], bar, x_ring.index(stage))
            hopper.tma.async_copy_global_to_shared(
                weight_desc, [tile % n_blocks * 128, k], bar, weight_ring.index(stage)
            )
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1


@gluon_jit
def multiply(
    x_ring, weight_ring, full, empty, turn, rows, features: tl.constexpr, depth: tl.constexpr, x_scale_ptr,
    weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF: tl.constexpr, WHO: tl.constexpr,
):  # fmt: skip
    """Four warps, group WHO: every second tile of the program. The groups multiply in turn, so that one finishes its
    tile while the other multiplies; group 0 has as many tiles as group 1, or one more."""
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16])
    n_blocks = features // 128
    steps = depth // 64
    count = WHO * steps
    turn_phase = 1 if WHO == 0 else 0  # the first turn is group 0's: a barrier without arrivals counts as passed
    if HALF:
        bound = gl.load(norm_ptr).to(gl.float32, bitcast=True) * gl.load(bound_ptr) + gl.load(bound_ptr + 1)
        exponent = exponent_of(bound) - 14
        if WHO == 0:
            if gl.program_id(0) == 0:
                gl.store(scale_ptr, power(exponent))
        up = power(-exponent)
        factor = up
    else:
        up = 1.0
        factor = gl.load(x_scale_ptr)
    first = gl.program_id(0) + WHO * gl.num_programs(0)
    for tile in range(first, gl.cdiv(rows, 128) * n_blocks, 2 * gl.num_programs(0)):
        upper = gl.full([64, 128], 0.0, gl.float32, mma)
        lower = gl.full([64, 128], 0.0, gl.float32, mma)
        stage = count % RING
        phase = count // RING & 1
        hopper.mbarrier.wait(turn.index(WHO), turn_phase)
        turn_phase ^= 1
        for step in range(steps):
            hopper.mbarrier.wait(full.index(stage), phase)
            x = x_ring.index(stage)
            weight = weight_ring.index(stage).permute((1, 0))
            upper = hopper.warpgroup_mma(x.slice(0, 64), weight, upper, is_async=True)
            lower = hopper.warpgroup_mma(x.slice(64, 64), weight, lower, is_async=True)
            upper, lower = hopper.warpgroup_mma_wait(num_outstanding=2, deps=[upper, lower])
            gl.thread_barrier()  # all four warps have read the stage before
            hopper.mbarrier.arrive(empty.index((stage + RING - 1) % RING), count=1, pred=step > 0)
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1
        hopper.mbarrier.arrive(turn.index(1 - WHO), count=1)  # theirs queue behind these
        upper, lower = hopper.warpgroup_mma_wait(num_outstanding=0, deps=[upper, lower])
        gl.thread_barrier()
        hopper.mbarrier.arrive(empty.index((stage + RING - 1) % RING), count=1)
        count += 2 * steps
        first_m = tile // n_blocks * 128
        first_n = tile % n_blocks * 128
        finish(upper, first_m, first_n, rows, features, x_scale_ptr, weight_scale_ptr, bias_ptr, factor, up, out_ptr,
               HALF)  # fmt: skip
        finish(lower, first_m + 64, first_n, rows, features, x_scale_ptr, weight_scale_ptr, bias_ptr, factor, up,
               out_ptr, HALF)  # fmt: skip


@gluon_jit
def multiply_first(
    x_ring, weight_ring, full, empty, turn, rows, features: tl.constexpr, depth: tl.constexpr, x_scale_ptr,
    weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF: tl.constexpr,
):  # fmt: skip
    multiply(x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr, weight_scale_ptr, bias_ptr,
             norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF, 0)  # fmt: skip


@gluon_jit
def multiply_second(
    x_desc, weight_desc, x_ring, weight_ring, full, empty, turn, rows, features: tl.constexpr, depth: tl.constexpr,
    x_scale_ptr, weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF: tl.constexpr,
):  # fmt: skip
    multiply(x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr, weight_scale_ptr, bias_ptr,
             norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF, 1)  # fmt: skip


@gluon_jit
def load_both(
    x_desc, weight_desc, x_ring, weight_ring, full, empty, turn, rows, features: tl.constexpr, depth: tl.constexpr,
    x_scale_ptr, weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF: tl.constexpr,
):  # fmt: skip
    load(x_desc, weight_desc, x_ring, weight_ring, full, empty, rows, features, depth)


@gluon_jit
def specialised_kernel(
    x_desc, weight_desc, x_scale_ptr, weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, rows,
    features: tl.constexpr, depth: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """As linear_kernel: two groups of four warps that multiply and finish, and a warp that loads."""
    x_ring = gl.allocate_shared_memory(gl.float16, [RING, 128, 64], x_desc.layout)
    weight_ring = gl.allocate_shared_memory(gl.float16, [RING, 128, 64], weight_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [RING, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [RING, 1], hopper.mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(RING):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        hopper.mbarrier.init(turn.index(i), count=1)
    hopper.fence_async_shared()
    gl.thread_barrier()
    if PAIRS:
        gl.warp_specialize(
            [
                (multiply_first, (
                    x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr, weight_scale_ptr,
                    bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF,
                )),
                (multiply_second, (
                    x_desc, weight_desc, x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr,
                    weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF,
                )),
                (load_both, (
                    x_desc, weight_desc, x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr,
                    weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF,
                )),
            ],
            [4, 1], [REGISTERS, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            (x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr, weight_scale_ptr, bias_ptr,
             norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF), multiply_first,
            (x_desc, weight_desc, x_ring, weight_ring, full, empty, turn, rows, features, depth, x_scale_ptr,
             weight_scale_ptr, bias_ptr, norm_ptr, bound_ptr, out_ptr, scale_ptr, HALF),
            [multiply_second, load_both], [4, 1], [REGISTERS, 40],
        )  # fmt: skip


def has_specialised_path(weight: torch.Tensor) -> bool:
    """Whether specialised_kernel can do it: as compiled by Triton 3.5 or 3.6 for sm_90."""
    return (
        gluon is not None and triton.__version__.startswith(("3.5.", "3.6."))
        and weight.device.type != "cpu" and not triton.knobs.runtime.interpret
        and triton.runtime.driver.active.get_current_target().arch == 90
        and weight.shape[0] % 128 == 0 and weight.shape[1] % 64 == 0
    )  # fmt: skip


def half_rows(x: torch.Tensor, turned: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (rows, depth) as fp16, the scales of its rows, and their largest norm as the bits of a float."""
    rows, depth = x.shape
    out = torch.empty((rows, depth), device=x.device, dtype=torch.float16)
    scale = torch.empty((rows,), device=x.device, dtype=torch.float32)
    norm = torch.zeros((1,), device=x.device, dtype=torch.int32)
    block = triton.next_power_of_2(depth)
    half_rows_kernel[(triton.cdiv(rows, 8),)](
        x, out, scale, norm, rows, depth, ROWS=8, BLOCK=block, TURNED=turned, num_warps=8
    )
    return out, scale, norm


def packed(layer: nn.Linear) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The weight as fp16, the scales of its rows, and (the largest norm of a row, the largest bias)."""
    weight, scale, norm = half_rows(layer.weight.detach().contiguous(), has_specialised_path(layer.weight))
    return weight, scale, torch.cat((norm.view(torch.float32), layer.bias.detach().abs().max().view(1)))


def linear(
    x: torch.Tensor, x_scale: torch.Tensor, norm: torch.Tensor | None, layer: nn.Linear, kept: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """x through the layer; in fp16 with its scale where norm is given. See linear_kernel."""
    weight, weight_scale, bound = kept
    (rows, depth), features = x.shape, weight.shape[0]
    dtype = torch.float32 if norm is None else torch.float16
    out = torch.empty((rows, features), device=x.device, dtype=dtype)
    scale = torch.empty((1,), device=x.device, dtype=torch.float32)
    if has_specialised_path(weight):
        matrix = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
        tiles = triton.cdiv(rows, 128) * features // 128
        specialised_kernel[(min(tiles, MULTIPROCESSORS),)](
            GluonDescriptor(x, [rows, depth], [depth, 1], [128, 64], matrix),
            GluonDescriptor(weight, [features, depth], [depth, 1], [128, 64], matrix), x_scale, weight_scale,
            layer.bias, bound if norm is None else norm, bound, out, scale, rows, features, depth,
            HALF=norm is not None, num_warps=4,
        )  # fmt: skip
        return out, scale
    linear_kernel[(triton.cdiv(rows, TILE["BLOCK_M"]) * triton.cdiv(features, TILE["BLOCK_N"]),)](
        TensorDescriptor.from_tensor(x, [TILE["BLOCK_M"], TILE["BLOCK_K"]]),
        TensorDescriptor.from_tensor(weight, [TILE["BLOCK_N"], TILE["BLOCK_K"]]),
        x_scale, weight_scale, layer.bias, norm, bound, out, scale, rows, features, depth, HALF=norm is not None,
        **TILE,
    )  # fmt: skip
    return out, scale


def attention(qkv: torch.Tensor, scale: torch.Tensor, length: int, heads: int) -> torch.Tensor:
    """Causal attention; shapes as in attention_kernel."""
    rows, width = qkv.shape[0], qkv.shape[1] // 3
    depth = width // heads
    piece = 1 << (depth.bit_length() - 1)
    rest = max(16, triton.next_power_of_2(depth - piece))
    out = torch.empty((rows, width), device=qkv.device, dtype=qkv.dtype)
    attention_kernel[(rows // length * heads * triton.cdiv(length, ATTENTION["BLOCK_Q"]),)](
        qkv, scale, out, length, heads, math.log2(math.e) / math.sqrt(depth), D=depth, D1=piece, D2=rest, **ATTENTION
    )
    return out


class ModelNew(nn.Module):
    """One projection to q, k and v, causal softmax attention, output projection; dropouts are idle in evaluation."""

    def __init__(self, n_embd: int, n_head: int, attn_pdrop: float, resid_pdrop: float, max_seqlen: int) -> None:
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        mask = torch.tril(torch.ones(max_seqlen, max_seqlen))
        self.register_buffer("bias", mask.view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd
        self._kept: tuple[list[tuple[torch.Tensor, int]], tuple[tuple[torch.Tensor, ...], ...]] | None = None

    def packed_layers(self) -> tuple[tuple[torch.Tensor, ...], ...]:
        """What `packed` makes of both layers, made again when a parameter was written to or replaced."""
        now = [(p.detach(), p._version) for p in (*self.c_attn.parameters(), *self.c_proj.parameters())]
        if self._kept is None or any(
            old.data_ptr() != p.data_ptr() or version != old_version
            for (old, old_version), (p, version) in zip(self._kept[0], now, strict=True)
        ):
            # the parameters' memory is kept as well, so that its address is not given to others
            self._kept = (now, (packed(self.c_attn), packed(self.c_proj)))
        return self._kept[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, sequence, n_embd); returns the same shape."""
        batch, length, width = x.shape
        if x.numel() == 0:
            return torch.empty_like(x)
        with torch.cuda.device_of(x):
            first, last = self.packed_layers()
            x, x_scale, norm = half_rows(x.contiguous().view(batch * length, width))
            qkv, scale = linear(x, x_scale, norm, self.c_attn, first)
            y = attention(qkv, scale, length, self.n_head)
            out, _ = linear(y, scale, None, self.c_proj, last)
        return out.view(batch, length, width)
