"""KernelBench level 1, problem 97: scaled dot-product attention with a large head dimension, hand-written in Triton.

An output row of 1024 floats does not fit in registers beside the scores, so this is no flash attention: a first kernel
has all scores of 64 queries in registers, takes their softmax and writes the weights in fp16; a second multiplies them
by V. fp16 has TF32's ten bits of mantissa at twice its rate. Operands are scaled by powers of two, which is exact, so
that nothing leaves fp16's range; sums are fp32. Only K is made fp16 in a pass of its own. Q and V are read as they are
and made fp16 in registers, from where the tensor cores take them; so the second product is that of the transposes.
The scale of a row of Q follows from its first elements: the largest comes to 1 to 2, with fp16's whole mantissa down
to 2^-14 and room for later ones that are 30,000 times as large. Where that was not enough, which the sums show, they
are made again with the right scales.

On sm_90 the second product is in Gluon: one warp loads both operands by TMA into a ring of stages, also those of the
next tile, while two groups of four warps multiply and write; each has 64 columns of V. A column's scale follows from
its largest element so far; when that grows, the sums are scaled down. Elsewhere it is in Triton, scaled as Q is.
More than 512 keys are left to torch.

Floor: 8.6 GB of inputs and output at copy bandwidth, 2.1 ms on an H200, 2.8 ms on an H100; the products' 1.1 TFLOP
take 1.2 ms at fp16 peak. This design moves 11.8 GB, 2.8 ms on an H200. Measured 3.72 ms (H200, torch 2.11 and Triton
3.6, which is not the pinned stack). Kernels in ms, then their bytes at copy bandwidth: half_rows_kernel 0.73, 0.77;
weights_kernel 1.56 (with 4 stages), 0.90; specialised_kernel 1.46, 1.15. Bound by the weights: the scores of 64 queries
fill half of the registers, so a multiprocessor has one program, whose first loads and softmax overlap with nothing. It
reaches 36 % of fp16 peak and 58 % of copy bandwidth. Counters of ncu in Triton (same stack, WEIGHTS 64, 64, 8, 2; of
peak: memory, L2, tensor cores; then warps): weights_kernel 41, 61, 40 and 12 %; values_kernel 38, 55, 28 and 12 %.
Designs in ms, same GPU and stack: this one 3.72; WEIGHTS with 4 stages 3.75, with BLOCK_K 64 and 2 stages 4.27, with
16 and 8 4.54; the weights in Gluon too, half of the keys a group, 3.71 to 3.73, which is not worth a second such
kernel; values in Triton in tiles of 256 x 64 4.19, 512 x 64 4.31, 256 x 128 4.39, 128 x 128 4.52; with passes for Q, K
and V 4.81.
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

HALF = {"ROWS": 8, "num_warps": 8}
WEIGHTS = {"BLOCK_M": 64, "BLOCK_K": 32, "num_warps": 8, "num_stages": 5}
VALUES = {"BLOCK_M": 256, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 4}
HEADS = 1024  # at a time
MOST_KEYS = 512  # a program of the first product has a row of the weights in its registers

# The path in Gluon, for sm_90: tiles of 256 queries and 128 columns of V, 64 keys a stage.
MULTIPROCESSORS = 132  # of an H100 or H200, a program on each
RING = tl.constexpr(3)  # stages, 192 KB
REGISTERS = tl.constexpr(232)  # of a thread that multiplies
PAIRS = tl.constexpr(not triton.__version__.startswith("3.5."))  # so warp_specialize takes them


@triton.jit
def power(exponent):
    """2^exponent for -126 <= exponent <= 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exponent_of(x, top: tl.constexpr):
    """The exponent of the power of two that brings x >= 0 near 2^top, bounded so that it and its inverse exist."""
    return top - tl.maximum((x.to(tl.int32, bitcast=True) >> 23) - 127, -112)


@triton.jit
def half_rows_kernel(x_ptr, out_ptr, scale_ptr, rows, depth, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out = x (rows, depth) / scale in fp16, scale a power of two that puts a row's largest element near 2^14."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * depth + column[None, :]
    inside = (row < rows)[:, None] & (column < depth)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    exponent = exponent_of(tl.max(tl.abs(x), axis=1), 14)
    tl.store(out_ptr + at, (x * power(exponent)[:, None]).to(tl.float16), mask=inside)
    tl.store(scale_ptr + row, power(-exponent), mask=row < rows)


@triton.jit
def overflowed(acc):
    """Whether anything in acc is not finite."""
    return tl.max(tl.max(tl.where(acc - acc == 0.0, 0, 1), axis=1), axis=0) > 0


@triton.jit
def weights_kernel(
    q_desc, k_desc, k_scale_ptr, out_ptr, queries, keys, depth, factor,
    BLOCK_M: tl.constexpr, KEYS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Attention weights of a block of queries as fp16: out (heads, queries, KEYS), 0 from keys on, 1 at most.

    factor is that of the scores, times log2(e). Grid: heads * query blocks.
    """
    blocks = tl.cdiv(queries, BLOCK_M)
    head = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * BLOCK_M
    acc = tl.zeros((BLOCK_M, KEYS), dtype=tl.float32)
    tl.assume(depth > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    exponent = exponent_of(tl.max(tl.abs(tl.reshape(q_desc.load([head, first, 0]), (BLOCK_M, BLOCK_K))), axis=1), 0)
    attempt = 0
    while attempt < 2:
        up = power(exponent)[:, None]
        acc = tl.zeros((BLOCK_M, KEYS), dtype=tl.float32)
        for start in range(0, depth, BLOCK_K):
            q = (tl.reshape(q_desc.load([head, first, start]), (BLOCK_M, BLOCK_K)) * up).to(tl.float16)
            k = tl.reshape(k_desc.load([head, 0, start]), (KEYS, BLOCK_K))
            acc = tl.dot(q, tl.trans(k), acc)
        attempt += 1
        if attempt < 2:
            if overflowed(acc):
                largest = tl.zeros((BLOCK_M,), dtype=tl.float32)
                for start in range(0, depth, BLOCK_K):
                    q = tl.reshape(q_desc.load([head, first, start]), (BLOCK_M, BLOCK_K))
                    largest = tl.maximum(largest, tl.max(tl.abs(q), axis=1))
                exponent = exponent_of(largest, 14)
            else:
                attempt = 2

    m = first + tl.arange(0, BLOCK_M)
    t = tl.arange(0, KEYS)
    row = head.to(tl.int64) * queries + m
    key = head.to(tl.int64) * keys + t
    acc *= (factor * power(-exponent))[:, None]
    acc *= tl.load(k_scale_ptr + key, mask=t < keys, other=0.0)[None, :]
    acc = tl.where((t < keys)[None, :], acc, -float("inf"))
    acc = tl.exp2(acc - tl.max(acc, axis=1)[:, None])
    # 1 / sum brings the largest weight to at most 1, 2^15 away from the top of fp16
    acc *= (32768.0 / tl.sum(acc, axis=1))[:, None]
    tl.store(out_ptr + row[:, None] * KEYS + t[None, :], acc.to(tl.float16), mask=(m < queries)[:, None])


@triton.jit
def values_kernel(
    p_desc, v_desc, out_ptr, queries, keys, depth,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (heads, queries, depth) = p v. Grid: heads * depth blocks * query blocks, query blocks fastest, so that a
    block of v comes from memory once."""
    m_blocks = tl.cdiv(queries, BLOCK_M)
    n_blocks = tl.cdiv(depth, BLOCK_N)
    head = tl.program_id(0) // (m_blocks * n_blocks)
    first_n = tl.program_id(0) // m_blocks % n_blocks * BLOCK_N
    first_m = tl.program_id(0) % m_blocks * BLOCK_M
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    tl.assume(keys > 0)
    exponent = exponent_of(tl.max(tl.abs(tl.reshape(v_desc.load([head, 0, first_n]), (BLOCK_K, BLOCK_N))), axis=0), 0)
    attempt = 0
    while attempt < 2:
        up = power(exponent)[None, :]
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for start in range(0, keys, BLOCK_K):
            v = (tl.reshape(v_desc.load([head, start, first_n]), (BLOCK_K, BLOCK_N)) * up).to(tl.float16)
            p = tl.reshape(p_desc.load([head, first_m, start]), (BLOCK_M, BLOCK_K))
            acc = tl.dot(tl.trans(v), tl.trans(p), acc)
        attempt += 1
        if attempt < 2:
            if overflowed(acc):
                largest = tl.zeros((BLOCK_N,), dtype=tl.float32)
                for start in range(0, keys, BLOCK_K):
                    v = tl.reshape(v_desc.load([head, start, first_n]), (BLOCK_K, BLOCK_N))
                    largest = tl.maximum(largest, tl.max(tl.abs(v), axis=0))
                exponent = exponent_of(largest, 14)
            else:
                attempt = 2
    m = first_m + tl.arange(0, BLOCK_M)
    n = first_n + tl.arange(0, BLOCK_N)
    acc = tl.trans(acc * (power(-exponent) * (1.0 / 32768.0))[:, None])
    row = head.to(tl.int64) * queries + m
    tl.store(out_ptr + row[:, None] * depth + n[None, :], acc, mask=(m < queries)[:, None] & (n < depth)[None, :])


def gluon_jit(function: Callable[..., None]) -> Callable[..., Any]:
    """gluon.jit, or nothing where there is no Gluon."""
    return gluon.jit(function) if gluon else function


@gluon_jit
def swapped(x, A: gl.constexpr, B: gl.constexpr):
    """x [64] with the order of the A and B neighbours in each 16 exchanged."""
    return gl.reshape(gl.permute(gl.reshape(x, [4, A, B]), [0, 2, 1]), [64])


@gluon_jit
def load(p_desc, v_desc, p_ring, v_ring, full, empty, tiles, queries: gl.constexpr, keys: gl.constexpr,
         depth: gl.constexpr):  # fmt: skip
    """One warp: weights and values.

    No wait is endless. This warp and both groups walk the same tiles, each of keys // 64 >= 1 steps; step i uses stage
    i % RING. full gets one arrival a step, from here, and its phase ends when the bytes are there: tiles are whole, so
    none is missing. empty gets two, one from each group. Pass n over a stage waits here until both have released pass
    n - 1, and there until pass n is full, so nothing gets two passes ahead and one bit of phase is enough. A group
    releases a step in the next one or at the end of its tile; so it may wait for a step while it holds the one before,
    which RING >= 2 lets this warp load. Programs do not wait for each other: any number of multiprocessors will do.
    """
    m_blocks: gl.constexpr = queries // 256
    n_blocks: gl.constexpr = depth // 128
    stage = 0
    phase = 1  # a barrier of a stage that was never full counts as passed
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head = tile // (m_blocks * n_blocks)
        first_n = tile // m_blocks % n_blocks * 128
        row = head * queries + tile % m_blocks * 256
        for k in range(0, keys, 64):
            hopper.mbarrier.wait(empty.index(stage), phase)
            bar = full.index(stage)
            hopper.mbarrier.expect(bar, 256 * 64 * 2 + 128 * 64 * 4)
            hopper.tma.async_copy_global_to_shared(v_desc, [head * keys + k, first_n], bar, v_ring.index(2 * stage))
            hopper.tma.async_copy_global_to_shared(
                v_desc, [head * keys + k, first_n + 64], bar, v_ring.index(2 * stage + 1)
            )
            hopper.tma.async_copy_global_to_shared(p_desc, [row, k], bar, p_ring.index(stage))
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1


@gluon_jit
def multiply(p_ring, v_ring, full, empty, out_ptr, tiles, queries: gl.constexpr, keys: gl.constexpr,
             depth: gl.constexpr, WHO: gl.constexpr):  # fmt: skip
    """Four warps, group WHO: 64 columns of V, transposed, times the weights' transpose. A column's scale follows from
    the largest element so far; when that grows, the sums are scaled down. A warp has its 16 columns in such an order
    that a thread's two are neighbours."""
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    turned: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[1, 0], [0, 1], [0, 8], [0, 16], [0, 32]],
        lane_bases=[[0, 2], [0, 4], [2, 0], [4, 0], [8, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 64],
    )
    sums: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[1, 0], [0, 1], [0, 8], [0, 16], [0, 32], [0, 64], [0, 128]],
        lane_bases=[[0, 2], [0, 4], [2, 0], [4, 0], [8, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 256],
    )
    m_blocks: gl.constexpr = queries // 256
    n_blocks: gl.constexpr = depth // 128
    stage = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        acc = hopper.warpgroup_mma_init(gl.full([64, 256], 0.0, gl.float32, mma))
        v16 = gl.full([64, 64], 0.0, gl.float16, operand)
        exponent = gl.full([64], 126, gl.int32, gl.SliceLayout(1, turned))
        for step in range(keys // 64):
            hopper.mbarrier.wait(full.index(stage), phase)
            v = v_ring.index(2 * stage + WHO).permute((1, 0)).load(turned)
            now = gl.minimum(exponent, exponent_of(gl.max(gl.abs(v), axis=1), 14))
            fade = power(gl.maximum(now - exponent, -126))
            exponent = now
            v = (v * power(now)[:, None]).to(gl.float16)
            v = gl.reshape(gl.permute(gl.reshape(v, [4, 8, 2, 64]), [0, 2, 1, 3]), [64, 64])
            v = gl.convert_layout(v, operand, assert_trivial=True)
            fade = gl.convert_layout(swapped(fade, 8, 2), gl.SliceLayout(1, mma))
            total, v16 = hopper.warpgroup_mma_wait(num_outstanding=0, deps=[acc, v16])
            gl.thread_barrier()  # all four warps have done with the stage before
            hopper.mbarrier.arrive(empty.index((stage + RING - 1) % RING), count=1, pred=step > 0)
            v16 = v
            acc = hopper.warpgroup_mma(v16, p_ring.index(stage).permute((1, 0)), total * fade[:, None], is_async=True)
            stage += 1
            if stage == RING:
                stage = 0
                phase ^= 1
        total, v16 = hopper.warpgroup_mma_wait(num_outstanding=0, deps=[acc, v16])
        gl.thread_barrier()
        hopper.mbarrier.arrive(empty.index((stage + RING - 1) % RING), count=1)
        total = gl.reshape(gl.permute(gl.reshape(total, [4, 2, 8, 256]), [0, 2, 1, 3]), [64, 256])
        total = gl.convert_layout(total, sums, assert_trivial=True)
        scale = gl.convert_layout(power(-exponent) * (1.0 / 32768.0), gl.SliceLayout(1, sums))
        head = tile // (m_blocks * n_blocks)
        n = tile // m_blocks % n_blocks * 128 + WHO * 64 + gl.arange(0, 64, gl.SliceLayout(1, sums))
        row = head * queries + tile % m_blocks * 256 + gl.arange(0, 256, gl.SliceLayout(0, sums))
        gl.store(out_ptr + row.to(gl.int64)[None, :] * depth + n[:, None], total * scale[:, None])


@gluon_jit
def multiply_first(p_ring, v_ring, full, empty, out_ptr, tiles, queries: gl.constexpr, keys: gl.constexpr,
                   depth: gl.constexpr):  # fmt: skip
    multiply(p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth, 0)


@gluon_jit
def multiply_second(p_desc, v_desc, p_ring, v_ring, full, empty, out_ptr, tiles, queries: gl.constexpr,
                    keys: gl.constexpr, depth: gl.constexpr):  # fmt: skip
    multiply(p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth, 1)


@gluon_jit
def load_both(p_desc, v_desc, p_ring, v_ring, full, empty, out_ptr, tiles, queries: gl.constexpr,
              keys: gl.constexpr, depth: gl.constexpr):  # fmt: skip
    load(p_desc, v_desc, p_ring, v_ring, full, empty, tiles, queries, keys, depth)


@gluon_jit
def specialised_kernel(
    p_desc, v_desc, out_ptr, tiles, queries: gl.constexpr, keys: gl.constexpr, depth: gl.constexpr
):  # fmt: skip
    """As values_kernel: two groups of four warps that multiply and write, and a warp that loads."""
    p_ring = gl.allocate_shared_memory(gl.float16, [RING, 256, 64], p_desc.layout)
    v_ring = gl.allocate_shared_memory(gl.float32, [2 * RING, 64, 64], v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [RING, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [RING, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(RING):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=2)
    hopper.fence_async_shared()
    gl.thread_barrier()
    if PAIRS:
        gl.warp_specialize(
            [
                (multiply_first, (p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth)),
                (multiply_second, (p_desc, v_desc, p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth)),
                (load_both, (p_desc, v_desc, p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth)),
            ],
            [4, 1], [REGISTERS, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            (p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth), multiply_first,
            (p_desc, v_desc, p_ring, v_ring, full, empty, out_ptr, tiles, queries, keys, depth),
            [multiply_second, load_both], [4, 1], [REGISTERS, 40],
        )  # fmt: skip


def has_specialised_path(x: torch.Tensor, queries: int, keys: int, depth: int) -> bool:
    """Whether specialised_kernel can do it: whole tiles alone, as compiled by Triton 3.5 or 3.6 for sm_90. All else, as
    reduced sizes and the interpreter, takes values_kernel. TMA reads what `aligned` has moved to a multiple of 16."""
    return (
        gluon is not None and triton.__version__.startswith(("3.5.", "3.6."))
        and x.device.type != "cpu" and not triton.knobs.runtime.interpret
        and triton.runtime.driver.active.get_current_target().arch == 90
        and queries % 256 == 0 and keys in (64, 128, 256, 512) and depth % 128 == 0
    )  # fmt: skip


def half_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x (heads, sequence, depth) as fp16 and the scales of its rows."""
    out = torch.empty(x.shape, device=x.device, dtype=torch.float16)
    scale = torch.empty(x.shape[:2], device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(scale.numel(), HALF["ROWS"]),)
    block = triton.next_power_of_2(x.shape[2])
    half_rows_kernel[grid](x, out, scale, scale.numel(), x.shape[2], BLOCK=block, **HALF)
    return out, scale


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Attention of some heads; all are contiguous, (heads, sequence, depth)."""
    heads, queries, depth = q.shape
    keys = k.shape[1]
    wide = max(16, triton.next_power_of_2(keys))
    k, k_scale = half_rows(k)
    p = torch.empty((heads, queries, wide), device=q.device, dtype=torch.float16)
    tile = WEIGHTS
    weights_kernel[(heads * triton.cdiv(queries, tile["BLOCK_M"]),)](
        TensorDescriptor.from_tensor(q, [1, tile["BLOCK_M"], tile["BLOCK_K"]]),
        TensorDescriptor.from_tensor(k, [1, wide, tile["BLOCK_K"]]), k_scale, p, queries, keys, depth,
        math.log2(math.e) / math.sqrt(depth), KEYS=wide, **tile,
    )  # fmt: skip
    if has_specialised_path(q, queries, keys, depth):
        halves = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
        floats = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
        tiles = heads * (queries // 256) * (depth // 128)
        specialised_kernel[(min(tiles, MULTIPROCESSORS),)](
            GluonDescriptor(p, [heads * queries, keys], [keys, 1], [256, 64], halves),
            GluonDescriptor(v, [heads * keys, depth], [depth, 1], [64, 64], floats), out, tiles, queries, keys, depth,
            num_warps=4,
        )  # fmt: skip
        return
    tile = VALUES
    values_kernel[(heads * triton.cdiv(queries, tile["BLOCK_M"]) * triton.cdiv(depth, tile["BLOCK_N"]),)](
        TensorDescriptor.from_tensor(p, [1, tile["BLOCK_M"], tile["BLOCK_K"]]),
        TensorDescriptor.from_tensor(v, [1, tile["BLOCK_K"], tile["BLOCK_N"]]), out, queries, keys, depth, **tile,
    )  # fmt: skip


def aligned(x: torch.Tensor) -> torch.Tensor:
    """x (..., sequence, depth) as (heads, sequence, depth), contiguous, where TMA can read it."""
    x = x.contiguous().flatten(0, -3)
    return x if x.data_ptr() % 16 == 0 else x.clone()


class ModelNew(nn.Module):
    """softmax(Q K^T / sqrt(d)) V, not causal."""

    def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        """Q, K, V: (batch, heads, sequence, d); returns the shape of Q."""
        if K.shape[-2] > MOST_KEYS:
            return nn.functional.scaled_dot_product_attention(Q, K, V)
        q, k, v = aligned(Q), K.contiguous().flatten(0, -3), aligned(V)
        out = torch.empty(Q.shape, device=Q.device, dtype=Q.dtype)
        if out.numel() == 0:
            return out
        flat = out.view(q.shape)
        with torch.cuda.device_of(Q):
            for first in range(0, q.shape[0], HEADS):
                some = slice(first, first + HEADS)
                attend(q[some], k[some], v[some], flat[some])
        return out
