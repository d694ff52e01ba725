"""The GPU as NVML knows it, and room in its memory for other processes."""

from __future__ import annotations

from typing import Any

import pynvml
import torch


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
