"""Fills the memory that a solution gets from torch: memory that nothing writes is never zero.

Fresh memory of a process is zero almost everywhere, so a sum into `torch.empty` would be right in the first call. The
fill is a NaN in every format, or in some calls a number, so that a kernel cannot tell it from an earlier result.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Iterator

import torch

from repro.judge.gpu import driver

# glibc's M_PERTURB: new memory is filled with the low byte of its value, inverted.
_PERTURB, _ON, _OFF = -6, 0x100, 0
# Bytes that fill memory: NaN, or numbers of about 0.01 and -0.01 in float32 and bfloat16.
_NAN, _FILLS = 0xFF, (0xFF, 0xFF, 0x3C, 0xBC)
_snapshot, _choose = torch.cuda.memory_snapshot, random.SystemRandom().choice


def _perturb(value: int) -> None:
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_PERTURB, value)


def of_process() -> None:
    """Fill whatever this process allocates on the CPU from now on."""
    _perturb(_ON | (_NAN ^ 0xFF))


@contextlib.contextmanager
def meanwhile() -> Iterator[None]:
    """Fill what this process allocates on the CPU meanwhile."""
    of_process()
    try:
        yield
    finally:
        _perturb(_OFF)


def before_call(device: torch.device) -> None:
    """Choose another fill. On a GPU, fill the free blocks of torch's allocator now, and wait.

    Pools of CUDA graphs stay as they are: a replay may read them.
    """
    byte = _choose(_FILLS)
    if device.type != "cuda":
        _perturb(_ON | (byte ^ 0xFF))
        return
    for segment in _snapshot():
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                driver.fill(address, block["size"], byte)
            address += block["size"]
    torch.cuda.synchronize()
