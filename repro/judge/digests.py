"""A keyed digest of a whole output, which its process must tell before the clock stops.

The key comes with the request for the call. Who wants to answer before the work is done has no output to digest; who
makes a digest up is found when the judge computes it from the bytes. Exact in integers modulo 2**64, so that the judge
may add it up from pieces.
"""

from __future__ import annotations

import functools

import torch

# Weights are drawn for so many elements and repeated with another factor.
PERIOD = 1 << 22
MASK = (1 << 64) - 1
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=2)
def _weights(key: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(key)
    low, high = -(1 << 62), 1 << 62
    return torch.randint(low, high, (PERIOD,), dtype=torch.int64, device=device, generator=generator)


def _factor(key: int, block: int) -> int:
    """An odd signed 64-bit number for a period (splitmix64)."""
    z = (key + (block + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z = (z ^ (z >> 31)) | 1
    return z - (1 << 64) if z >> 63 else z


def keyed(values: torch.Tensor, start: int, key: int) -> int:
    """The share of elements [start, start + values.numel()) of an output in its digest. values: any dtype but complex,
    in the order of the elements."""
    flat = values.detach().reshape(-1)
    if not flat.numel():
        return 0
    bits, weights = flat.view(_BITS[flat.element_size()]), _weights(key, flat.device)
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    at = 0
    while at < bits.numel():
        block, offset = divmod(start + at, PERIOD)
        count = min(PERIOD - offset, bits.numel() - at)
        part = bits[at : at + count].to(torch.int64) * weights[offset : offset + count]
        total += part.sum() * _factor(key, block)
        at += count
    return int(total.item()) & MASK
