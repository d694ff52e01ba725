"""A counter-based generator with the same bits on any GPU and on the CPU.

Philox 4x32-10 (Salmon et al., SC'11), keyed by a 64-bit seed. The counter holds an element counter, the tensor's index
and the kind of draw. Every conversion to a float is exact or one correctly rounded operation, so that neither libm nor
fused multiply-add can differ between machines:

uniform   (word >> 8) * 2**-24, in [0, 1); four elements a block: element e of a tensor takes lane (e % 4096) // 1024
          of counter (e // 4096) * 1024 + e % 1024, so that a GPU stores whole lines without shuffling
normal    the sum of the block's eight 16-bit halves, centred, times one float32 constant (Irwin-Hall of 8):
          mean 0, the requested standard deviation, |x| < 4.9 deviations, excess kurtosis -0.15
integer   low + (word * (high - low)) >> 32, lanes as for uniform
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_ROUNDS = 10
MULTIPLIER_A, MULTIPLIER_B = 0xD2511F53, 0xCD9E8D57
WEYL_A, WEYL_B = 0x9E3779B9, 0xBB67AE85
LANE = 1024
_TILE = 4 * LANE
_STREAMS = {"uniform": 0, "normal": 1, "integer": 2}
# Variance of the sum of eight uniform 16-bit words: 8 * (65536**2 - 1) / 12.
_IRWIN_HALL_STD = (8 * (65536.0**2 - 1) / 12) ** 0.5
_MASK = 0xFFFFFFFF
# Elements that are made at once on the CPU.
_STEP = 1 << 22
_Array = np.ndarray[Any, Any]


def _normal_constant(std: float) -> float:
    """Return the float32 factor from the doubled, centred sum (an integer below 2**20) to a deviate."""
    return float(np.float32(std / (2 * _IRWIN_HALL_STD)))


def philox_numpy(counter: _Array, seed: int, index: int, stream: int) -> list[_Array]:
    """Return four uint32 words (held in uint64 arrays) for each 64-bit counter."""
    c0, c1 = counter & np.uint64(_MASK), counter >> np.uint64(32)
    c2 = np.full_like(counter, index)
    c3 = np.full_like(counter, stream)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    low = np.uint64(_MASK)
    shift = np.uint64(32)
    for _ in range(_ROUNDS):
        a, b = c0 * np.uint64(MULTIPLIER_A), c2 * np.uint64(MULTIPLIER_B)
        c0, c1, c2, c3 = (b >> shift) ^ c1 ^ np.uint64(k0), b & low, (a >> shift) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + WEYL_A) & _MASK, (k1 + WEYL_B) & _MASK
    return [c0, c1, c2, c3]


def _cpu_words(start: int, count: int, seed: int, index: int, kind: str) -> _Array:
    """Return one word for each of the elements [start, start + count)."""
    first, last = start // _TILE, (start + count - 1) // _TILE
    counters = np.arange(first * LANE, (last + 1) * LANE, dtype=np.uint64)
    words = philox_numpy(counters, seed, index, _STREAMS[kind])
    tiles = np.stack([w.reshape(-1, LANE) for w in words], axis=1).reshape(-1)
    return tiles[start - first * _TILE : start - first * _TILE + count]


def _gpu_fill(out: torch.Tensor, kind: str, seed: int, index: int, start: int, low: int, high: int, std: float) -> None:
    from repro.inputs.philox_triton import normal_kernel, words_kernel  # a machine without a GPU never needs Triton

    flat, k0, k1 = out.view(-1), seed & _MASK, (seed >> 32) & _MASK
    signed = [word - (1 << 32) if word >> 31 else word for word in (k0, k1)]
    with torch.cuda.device(out.device):
        if kind == "normal":
            grid = (-(-flat.numel() // LANE),)
            normal_kernel[grid](flat, start, flat.numel(), *signed, index, _normal_constant(std), BLOCK=LANE)
        else:
            first, last = start // _TILE, (start + flat.numel() - 1) // _TILE
            integer = kind == "integer"
            words_kernel[(last - first + 1,)](
                flat, start, flat.numel(), *signed, index, low, high - low, INTEGER=integer, LANE=LANE
            )


def fill(
    out: torch.Tensor,
    kind: str,
    seed: int,
    index: int,
    *,
    start: int = 0,
    low: int = 0,
    high: int = 1,
    std: float = 1.0,
) -> torch.Tensor:
    """Fill `out` with elements [start, start + out.numel()) of tensor `index` and return it.

    out: contiguous, of any dtype; floats are made in float32 and rounded once. seed: 64 bits. kind: uniform, normal
    (standard deviation `std`) or integer ([low, high), a span below 2**32). Raises ValueError for a wider span.
    """
    if kind == "integer" and not 0 < high - low < 1 << 32:
        raise ValueError(f"integer range [{low}, {high}) must span 1 to 2**32 - 1 values")
    if out.is_cuda and out.numel():
        _gpu_fill(out, kind, seed, index, start, low, high, std)
        return out
    for part in out.view(-1).split(_STEP):
        values: _Array
        if kind == "normal":
            counters = np.arange(start, start + part.numel(), dtype=np.uint64)
            words = philox_numpy(counters, seed, index, _STREAMS[kind])
            total = np.sum([(w & np.uint64(0xFFFF)) + (w >> np.uint64(16)) for w in words], axis=0)
            values = (2 * total.astype(np.int64) - 8 * 65535).astype(np.float32) * np.float32(_normal_constant(std))
        else:
            drawn = _cpu_words(start, part.numel(), seed, index, kind)
            if kind == "uniform":
                values = (drawn >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
            else:
                values = ((drawn * np.uint64(high - low)) >> np.uint64(32)).astype(np.int64) + low
        part.copy_(torch.from_numpy(values))
        start += part.numel()
    return out
