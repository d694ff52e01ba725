"""Memory that judge and worker share: CUDA IPC on a GPU, an anonymous file in memory on the CPU.

The judge allocates; a worker opens by ticket. On a GPU every buffer is an allocation of its own, so that a handle never
maps memory in which the judge keeps a reference.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import torch

from repro.judge import driver

# A small allocation lies beside others of its process in one piece of memory, and a handle opens all of that.
GATE_BYTES = 2 << 20
# A worker that could cut a shared file would take the judge down with SIGBUS at the judge's next look at it.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _map(fd: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)


class SharedBuffer:
    """Judge side. `bytes` is the flat uint8 tensor; `fd` must be inherited by workers where it is not None."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.nbytes = max(int(nbytes), 1)
        self.fd: int | None = None
        self._handle = ""
        if device.type == "cuda":
            self.bytes, self._handle = driver.allocate(self.nbytes, device)
        else:
            self.fd = os.memfd_create("repro-buffer", os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, self.nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
            self.bytes = _map(self.fd, self.nbytes)

    def ticket(self, fd: int | None = None) -> dict[str, Any]:
        """What one worker needs to open this buffer. fd: its number in the worker, where it is another one there."""
        return {"fd": self.fd if fd is None else fd, "handle": self._handle, "nbytes": self.nbytes}

    def view(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
        """The first elements behind byte `offset` as a tensor of this dtype and shape."""
        return view(self.bytes, dtype, shape, offset)

    def poison(self) -> None:
        """Fills with ones: NaN in every float format, so that what nobody writes is never finite."""
        self.bytes.fill_(0xFF)

    def close(self) -> None:
        """Gives the memory back."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        elif self._handle:
            driver.free(self.bytes)
            self._handle = ""


class Gate(SharedBuffer):
    """A number that timed calls of one worker wait for on the GPU. Who opens it early, or does not wait, computes from
    inputs that are not there."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(GATE_BYTES, device)
        self.device, self.number = device, 0
        self.bytes.zero_()

    def next(self) -> int:
        """The number that opens it the next time."""
        self.number += 1
        return self.number

    def open(self) -> None:
        """What waits for the last number goes on. On the CPU nothing waits."""
        if self.device.type == "cuda":
            driver.write(self.bytes, self.number, torch.cuda.current_stream(self.device))


def view(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """A flat uint8 tensor's bytes from `offset` on, as dtype and shape."""
    count = 1
    for size in shape:
        count *= size
    return data[offset : offset + count * dtype.itemsize].view(dtype).view(shape)


def open_ticket(ticket: dict[str, Any], device: torch.device) -> torch.Tensor:
    """Worker side: the flat uint8 tensor behind a ticket."""
    if ticket["fd"] is not None:
        return _map(ticket["fd"], ticket["nbytes"])
    return driver.open_handle(ticket["handle"], ticket["nbytes"], device)
