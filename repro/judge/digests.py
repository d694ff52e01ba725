"""A keyed digest of a whole output, which its process must tell before the judge's clock stops.

The key comes when the call has ended, so that no kernel can sum up what it writes. Who wants to answer before the work
is done has no output to digest; who makes a digest up is found when the judge computes it from the bytes, unless they
are made to fit it afterwards: a sum binds nobody who may then choose the last bits of many elements (docs/judging.md).
Exact in integers modulo 2**64, so that the judge may add it up from pieces. On a GPU it is one kernel (`digest.ptx`):
whatever passes between the end of a call and its answer is time in which somebody quicker could work unseen.
"""

from __future__ import annotations

import functools

import torch

from repro.judge import driver

# Words that one pass takes at most.
STEP = 1 << 22
MASK, WORD = (1 << 64) - 1, (1 << 32) - 1
# A word's place is mixed by multiplication with odd numbers and by shifts (after MurmurHash3's last step).
GOLDEN, MIX, LAST = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}


@functools.lru_cache(maxsize=2)
def _sum(device: torch.device) -> driver.Sum:
    return driver.Sum(device)


def prepare(device: torch.device) -> None:
    """Loads the kernel, so that no timed call waits for that."""
    if device.type == "cuda":
        keyed(torch.zeros(1, device=device), 0, 1)


def _weights(places: torch.Tensor, key: int) -> torch.Tensor:
    """Odd 32-bit weights of places, which it overwrites, as int64."""
    h = places.bitwise_and_(WORD).bitwise_xor_(key & WORD)
    h.mul_(GOLDEN).bitwise_and_(WORD)
    h.bitwise_xor_(h >> 15).add_(key >> 32).bitwise_and_(WORD).mul_(MIX).bitwise_and_(WORD)
    h.bitwise_xor_(h >> 13).mul_(LAST).bitwise_and_(WORD)
    return h.bitwise_xor_(h >> 16).bitwise_or_(1)


def _unsigned(words: torch.Tensor) -> torch.Tensor:
    return words.to(torch.int64).bitwise_and_((1 << 8 * words.element_size()) - 1)


def words(values: torch.Tensor) -> torch.Tensor:
    """The elements as a flat tensor of integers of at most four bytes, the lower half of eight first."""
    dense = values.detach().contiguous()  # reshape keeps the gaps of one dimension
    flat = dense.as_strided((dense.numel(),), (1,))  # and one element the strides that it was told
    return flat.view(_WORDS[flat.element_size()])


def keyed(values: torch.Tensor, start: int, key: int) -> int:
    """The share of elements [start, start + values.numel()) of an output in its digest: their words, as unsigned
    numbers, times the weights of their places. values: any dtype but complex, in the order of the elements; key: 64
    bits."""
    flat = words(values)
    first, total = start * (2 if values.element_size() == 8 else 1), 0
    if flat.device.type == "cuda":
        for at in range(0, flat.numel(), 1 << 30):  # the kernel counts in 32 bits
            part = flat[at : at + (1 << 30)]
            total += _sum(flat.device)(part, (first + at) & WORD, key & WORD, key >> 32)
        return total & MASK
    for at in range(0, flat.numel(), STEP):
        part = flat[at : at + STEP]
        places = torch.arange(first + at, first + at + part.numel(), device=flat.device)
        total += int(_unsigned(part).mul_(_weights(places, key)).sum())
    return total & MASK


def reordered(values: torch.Tensor, start: int, key: int, shape: list[int], order: list[int]) -> int:
    """As `keyed`, of an output of this shape whose process digested it in the order of its memory, by dimensions from
    the outermost to the innermost. values: its elements from `start` on, in their own order."""
    strides, stride = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], stride = stride, stride * shape[dim]
    flat, halves, total = words(values), 2 if values.element_size() == 8 else 1, 0
    for at in range(0, flat.numel(), STEP):
        part = flat[at : at + STEP]
        left = torch.arange(at, at + part.numel(), device=flat.device)
        half, left = left % halves, left // halves + start
        places = torch.zeros_like(left)
        for dim in reversed(range(len(shape))):
            places += left % shape[dim] * strides[dim]
            left //= shape[dim]
        total += int(_unsigned(part).mul_(_weights(places * halves + half, key)).sum())
    return total & MASK
