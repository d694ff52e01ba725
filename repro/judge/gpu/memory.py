"""Memory of the whole GPU: its peak while a job runs, as NVML sees it, and room for other processes."""

from __future__ import annotations

import threading
from typing import Any

import pynvml
import torch

_PERIOD_S = 0.01


def handle(uuid: str) -> Any:
    """Return NVML's handle of the GPU with the UUID that torch reports, or None if NVML does not answer."""
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None


def make_room(device: torch.device) -> None:
    """Give other processes what this one's allocator holds for later, where that is more than the GPU has left."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if cached > torch.cuda.mem_get_info(device)[0]:
            torch.cuda.empty_cache()


class DeviceMemory:
    """Samples used memory in a thread between `start` and `stop`. Does nothing if NVML does not answer."""

    def __init__(self, uuid: str | None) -> None:
        self.peak: int | None = None
        self.before: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle = None if uuid is None else handle(uuid)

    def _used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def _loop(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self.peak = max(self.peak or 0, self._used())

    def start(self) -> None:
        """Record the memory used now and start sampling."""
        if self._handle is not None:
            self.before = self.peak = self._used()
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()

    def mark(self) -> int | None:
        """Return the peak since the last mark, in bytes over `before`, and start a new peak. None if unknown."""
        if self.before is None or self.peak is None:
            return None
        over, self.peak = self.peak - self.before, self._used()
        return over

    def stop(self) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
