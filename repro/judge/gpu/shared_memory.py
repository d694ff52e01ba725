"""Memory shared by judge and worker: CUDA IPC on a GPU, an anonymous file in memory on the CPU.

The judge allocates; a worker opens by ticket. On a GPU every buffer is an allocation of its own, so that a handle never
maps other memory of the judge, such as a reference.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from typing import Any, TypedDict

import torch

from repro.judge.gpu import driver

# The driver packs small allocations of a process into one piece of memory, and a handle opens the whole piece.
_GATE_BYTES = 2 << 20
# Without seals a worker could shrink a shared file, and the judge's next access would end it by SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Ticket(TypedDict):
    """What opens a buffer in a worker: a descriptor, or on a GPU a handle."""

    fd: int | None
    handle: str
    nbytes: int


class Input(TypedDict, total=False):
    """An input as a worker receives it: a place in a buffer, or a value. turned: the last two dimensions swap places
    when the buffer is read, so that the input is not contiguous."""

    slot: str
    dtype: str
    shape: list[int]
    offset: int
    turned: bool
    value: Any


def _map(fd: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)


class SharedBuffer:
    """The judge's side. `bytes`: the flat uint8 tensor. `fd`: a descriptor that workers must inherit, or None."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.nbytes = max(int(nbytes), 1)
        self.fd: int | None = None
        self._handle = ""
        if device.type == "cuda":
            self.bytes, self._handle = driver.allocate(self.nbytes, device)
        else:
            self.fd = os.memfd_create("repro-buffer", os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, self.nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            self.bytes = _map(self.fd, self.nbytes)

    def ticket(self, fd: int | None = None) -> Ticket:
        """Return what a worker needs to open this buffer. fd: the descriptor's number in the worker, if different."""
        return {"fd": self.fd if fd is None else fd, "handle": self._handle, "nbytes": self.nbytes}

    def view(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
        """Return the first elements from byte `offset` on, as a tensor of this dtype and shape."""
        return view(self.bytes, dtype, shape, offset)

    def poison(self) -> None:
        """Fill with one bits, which are NaN in every float format, so that unwritten output is never finite."""
        self.bytes.fill_(0xFF)

    def close(self) -> None:
        """Free the memory."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        elif self._handle:
            driver.free(self.bytes)
            self._handle = ""


class Gate(SharedBuffer):
    """A number that one worker's timed calls wait for on the GPU.

    A solution that opens it early, or does not wait, computes from inputs that do not exist yet.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(_GATE_BYTES, device)
        self.device, self.number = device, 0
        self.bytes.zero_()

    def next(self) -> int:
        """Return the number that opens the gate the next time."""
        self.number += 1
        return self.number

    def open(self) -> None:
        """Release the streams that wait for the last number. On the CPU nothing waits."""
        if self.device.type == "cuda":
            driver.write(self.bytes, self.number, torch.cuda.current_stream(self.device))


def view(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """Return the bytes of a flat uint8 tensor from `offset` on, as dtype and shape."""
    return data[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)


def open_ticket(ticket: Ticket, device: torch.device) -> torch.Tensor:
    """Return the flat uint8 tensor behind a ticket, in the worker."""
    if ticket["fd"] is not None:
        return _map(ticket["fd"], ticket["nbytes"])
    return driver.open_handle(ticket["handle"], ticket["nbytes"], device)
