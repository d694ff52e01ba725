"""What binds a worker to a whole output: states of its segments, told under a key while a clock of the judge runs.

The key comes when the call has ended, so that no kernel can digest what it writes. A worker tells the root, a hash of
all states, at once and the states later; the judge computes those of the segments whose bytes it fetches. So who
answers before the work is done must guess states, and must later find bytes that have them.

A segment is taken by LANES lanes, 16 bytes each in turn. A lane's state of four words takes four words in by two of
ChaCha's quarter-rounds between which they are added once more, and what it was before; the lanes' states are taken
into one another, half by half, each twice. That is no function that cryptographers have looked at: it has to withstand
somebody for the seconds of a call, not for years. The root is BLAKE2b.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import torch

from repro.judge import driver

LANES, QUAD_BYTES, STATE_BYTES, ROOT_BYTES = 256, 16, 16, 32
# A turn is one load of every lane; a segment has so many at least, and outputs have so many segments at most.
TURN_BYTES, LEAST_TURNS, MOST_SEGMENTS = LANES * QUAD_BYTES, 8, 4096
KEY_BYTES = 16
Words = np.ndarray[Any, np.dtype[np.uint32]]


def turns(nbytes: int) -> int:
    """How many turns a segment of an output of so many bytes has: a power of two."""
    wanted = max(LEAST_TURNS, -(-nbytes // (TURN_BYTES * MOST_SEGMENTS)))
    return 1 << (wanted - 1).bit_length()


def segment_bytes(nbytes: int) -> int:
    """Bytes of a segment of an output of so many bytes."""
    return turns(nbytes) * TURN_BYTES


@functools.lru_cache(maxsize=2)
def _kernel(device: torch.device) -> driver.Digest:
    return driver.Digest(device)


def prepare(device: torch.device) -> None:
    """Loads the kernel, so that no timed call waits for that."""
    if device.type == "cuda":
        states(torch.zeros(64, dtype=torch.uint8, device=device), LEAST_TURNS, 0, bytes(KEY_BYTES))


def _rounds(s: list[Words]) -> None:
    a, b, c, d = s
    for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x += y
        z ^= x
        z[...] = (z << np.uint32(by)) | (z >> np.uint32(32 - by))


def _absorb(s: list[Words], w: list[Words]) -> list[Words]:
    new = [x ^ y for x, y in zip(s, w, strict=True)]
    _rounds(new)
    for i in range(4):
        new[i] += w[(i + 3) % 4]
    _rounds(new)
    return [x ^ y for x, y in zip(s, new, strict=True)]


def states(flat: torch.Tensor, turns_: int, first: int, key: bytes) -> bytes:
    """The states of the segments of flat bytes (uint8, dense, aligned to 16 bytes), of which the first is segment
    number `first` of its output: STATE_BYTES each. What lacks of the last one counts as zeros. key: KEY_BYTES."""
    if flat.device.type == "cuda":
        return _kernel(flat.device)(flat, turns_, first, key)
    size = turns_ * TURN_BYTES
    count = -(-flat.numel() // size)
    padded = np.zeros(count * size, dtype=np.uint8)
    padded[: flat.numel()] = flat.numpy()
    data = padded.view("<u4").reshape(count, turns_, LANES, 4)
    k = np.frombuffer(key, dtype="<u4")
    s = [np.full((count, LANES), word, dtype=np.uint32) for word in k]
    s[0] ^= (np.arange(first, first + count, dtype=np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)[:, None]
    s[1] ^= np.arange(LANES, dtype=np.uint32)
    for turn in range(turns_):
        s = _absorb(s, [data[:, turn, :, i] for i in range(4)])
    half = LANES // 2
    while half:
        left, right = [x[:, :half].copy() for x in s], [x[:, half : 2 * half] for x in s]
        s = _absorb(_absorb(left, right), right)
        half //= 2
    return np.stack([x[:, 0] for x in s], axis=1).astype("<u4").tobytes()


def root(states_: bytes, nbytes: int, key: bytes) -> str:
    """What stands for all states of an output of so many bytes."""
    return hashlib.blake2b(nbytes.to_bytes(8, "little") + states_, digest_size=ROOT_BYTES, key=key).hexdigest()


def of(flat: torch.Tensor, key: bytes) -> bytes:
    """All states of an output's bytes."""
    return states(flat, turns(flat.numel()), 0, key)
