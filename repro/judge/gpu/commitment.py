"""Commitment of a worker to a whole output: keyed states of its segments, sent while a clock of the judge runs.

The key arrives after the call has ended, so that no kernel of the call can digest what it writes. The worker sends the
root, a hash of all states, at once and the states later. The judge computes the states of the segments that it fetches.
A worker that answers before its work is done must guess states, and must later supply bytes that have them.

On a GPU each segment is read by LANES lanes, 16 bytes a lane in turn; the last segment is padded with zeros. A lane's
state of four words absorbs four words by two ChaCha quarter-round steps; the words are added again between these, and
the previous state at the end. Then the lanes' states are combined pairwise, half by half, each absorbed twice.
Cryptographers have not examined this function: it must resist an attack for the seconds of a call, not for years. On
the CPU a state is the BLAKE2b of the segment, salted with its number. The root is BLAKE2b.
"""

from __future__ import annotations

import functools
import hashlib

import torch

from repro.judge.gpu import driver

LANES, QUAD_BYTES, STATE_BYTES, _ROOT_BYTES = 256, 16, 16, 32
# A turn is one load of every lane. _LEAST_TURNS is the least a segment has, _MOST_SEGMENTS the most an output has.
_TURN_BYTES, _LEAST_TURNS, _MOST_SEGMENTS = LANES * QUAD_BYTES, 8, 4096
KEY_BYTES = 16


def turns(nbytes: int) -> int:
    """Return how many turns a segment has in an output of `nbytes` bytes: a power of two."""
    wanted = max(_LEAST_TURNS, -(-nbytes // (_TURN_BYTES * _MOST_SEGMENTS)))
    return 1 << (wanted - 1).bit_length()


def segment_bytes(nbytes: int) -> int:
    """Return the bytes of a segment in an output of `nbytes` bytes."""
    return turns(nbytes) * _TURN_BYTES


@functools.lru_cache(maxsize=2)
def _kernel(device: torch.device) -> driver.Digest:
    return driver.Digest(device)


def prepare(device: torch.device) -> None:
    """Load the kernel, so that no timed call waits for that."""
    if device.type == "cuda":
        states(torch.zeros(64, dtype=torch.uint8, device=device), _LEAST_TURNS, 0, bytes(KEY_BYTES))


def states(flat: torch.Tensor, turns_: int, first: int, key: bytes) -> bytes:
    """Return the states of the segments of flat bytes, STATE_BYTES each.

    flat: uint8, dense, aligned to 16 bytes. first: the number of its first segment in the output. key: KEY_BYTES bytes.
    """
    if flat.device.type == "cuda":
        return _kernel(flat.device)(flat, turns_, first, key)
    size, data = turns_ * _TURN_BYTES, flat.numpy().tobytes()
    numbered = enumerate(range(0, len(data), size), first)
    return b"".join(
        hashlib.blake2b(
            data[at : at + size], digest_size=STATE_BYTES, key=key, salt=number.to_bytes(8, "little")
        ).digest()
        for number, at in numbered
    )


def dense_bytes(value: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Return a tensor's bytes with its dimensions in this order, without a copy if they lie so in memory."""
    dense = value.detach().permute(order).contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # one element may have any strides
    return flat.view(torch.uint8)


def root(states_: bytes, nbytes: int, key: bytes) -> str:
    """Return the hash (hexadecimal) of all states of an output of `nbytes` bytes."""
    return hashlib.blake2b(nbytes.to_bytes(8, "little") + states_, digest_size=_ROOT_BYTES, key=key).hexdigest()


def of(flat: torch.Tensor, key: bytes) -> bytes:
    """Return all states of an output's bytes."""
    return states(flat, turns(flat.numel()), 0, key)
