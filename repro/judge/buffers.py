"""Memory that judge and worker share: CUDA IPC on a GPU, an anonymous file in memory on the CPU.

The judge allocates; a worker opens by ticket. On a GPU each buffer comes from a pool of its own, so that an IPC
handle never maps a segment in which the judge also keeps a reference.
"""

from __future__ import annotations

import base64
import fcntl
import mmap
import os
from typing import Any

import torch

# A worker that could cut a shared file would take the judge down with SIGBUS at the judge's next look at it.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_pool: Any = None


def _allocate_cuda(nbytes: int, device: torch.device) -> torch.Tensor:
    global _pool
    if _pool is None:
        _pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(_pool):
        return torch.empty(nbytes, dtype=torch.uint8, device=device)


def _map(fd: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)


class SharedBuffer:
    """Judge side. `bytes` is the flat uint8 tensor; `fd` must be inherited by workers where it is not None."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.nbytes = max(int(nbytes), 1)
        self.fd: int | None = None
        if device.type == "cuda":
            self.bytes = _allocate_cuda(self.nbytes, device)
        else:
            self.fd = os.memfd_create("repro-buffer", os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, self.nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
            self.bytes = _map(self.fd, self.nbytes)

    def ticket(self) -> dict[str, Any]:
        """What one worker needs to open this buffer."""
        if self.fd is not None:
            return {"fd": self.fd, "nbytes": self.nbytes}
        device, handle, size, offset, counter, counter_offset, event, sync = self.bytes.untyped_storage()._share_cuda_()
        blobs = {"handle": handle, "counter": counter, "event": event}
        return {"device": device, "size": size, "offset": offset, "counter_offset": counter_offset, "sync": sync} | {
            name: base64.b64encode(blob).decode() for name, blob in blobs.items()
        }

    def view(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
        """The first elements behind byte `offset` as a tensor of this dtype and shape."""
        return view(self.bytes, dtype, shape, offset)

    def poison(self) -> None:
        """Fills with ones: NaN in every float format, so that what nobody writes is never finite."""
        self.bytes.fill_(0xFF)

    def close(self) -> None:
        """Gives the descriptor back; the memory goes with the last tensor over it."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def view(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """A flat uint8 tensor's bytes from `offset` on, as dtype and shape."""
    count = 1
    for size in shape:
        count *= size
    return data[offset : offset + count * dtype.itemsize].view(dtype).view(shape)


def open_ticket(ticket: dict[str, Any]) -> torch.Tensor:
    """Worker side: the flat uint8 tensor behind a ticket."""
    if "fd" in ticket:
        return _map(ticket["fd"], ticket["nbytes"])
    blob = {name: base64.b64decode(ticket[name]) for name in ("handle", "counter", "event")}
    storage = torch.UntypedStorage._new_shared_cuda(
        ticket["device"],
        blob["handle"],
        ticket["size"],
        ticket["offset"],
        blob["counter"],
        ticket["counter_offset"],
        blob["event"],
        ticket["sync"],
    )
    return torch.empty(0, dtype=torch.uint8, device=f"cuda:{ticket['device']}").set_(storage)
