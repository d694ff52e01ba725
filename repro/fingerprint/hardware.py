"""GPU through NVML and the CUDA runtime, CPU and memory through /proc."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from repro import settings

# The salt keeps a UUID from being looked up in a table; equal hashes still mean the same physical GPU.
IDENTITY_SALT = "repro/gpu/1"
STATUS: dict[Any, str] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no_permission",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "function_not_found",
}


def entry(value: Any, source: str, status: str = "ok") -> dict[str, Any]:
    """One fingerprint value; an empty one is never `ok`. Its class stands in `classes`."""
    status = "absent" if value is None and status == "ok" else status
    return {"value": value, "source": source, "status": status}


def hashed(identity: str) -> str:
    """An identity as a salted hash of 12 hexadecimal digits."""
    return hashlib.sha256(f"{IDENTITY_SALT}|{identity}".encode()).hexdigest()[:12]


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def queries(h: Any) -> dict[str, Callable[[], Any]]:
    """name -> query. Every query may raise NVMLError; what it raises is recorded."""
    n = pynvml
    sm, mem = n.NVML_CLOCK_SM, n.NVML_CLOCK_MEM
    return {
        "gpu_name": lambda: _text(n.nvmlDeviceGetName(h)),
        "compute_capability": lambda: ".".join(map(str, n.nvmlDeviceGetCudaComputeCapability(h))),
        "board_part_number": lambda: _text(n.nvmlDeviceGetBoardPartNumber(h)),
        "cuda_cores": lambda: n.nvmlDeviceGetNumGpuCores(h),
        "memory_total_bytes": lambda: int(n.nvmlDeviceGetMemoryInfo(h).total),
        "memory_bus_bits": lambda: n.nvmlDeviceGetMemoryBusWidth(h),
        "max_sm_mhz": lambda: n.nvmlDeviceGetMaxClockInfo(h, sm),
        "max_memory_mhz": lambda: n.nvmlDeviceGetMaxClockInfo(h, mem),
        "mig_mode": lambda: n.nvmlDeviceGetMigMode(h)[0],
        "virtualization_mode": lambda: n.nvmlDeviceGetVirtualizationMode(h),
        "power_limit_w": lambda: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
        "power_limit_default_w": lambda: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
        "application_sm_mhz": lambda: n.nvmlDeviceGetApplicationsClock(h, sm),
        "application_memory_mhz": lambda: n.nvmlDeviceGetApplicationsClock(h, mem),
        "ecc": lambda: bool(n.nvmlDeviceGetEccMode(h)[0]),
        "persistence": lambda: bool(n.nvmlDeviceGetPersistenceMode(h)),
        "compute_mode": lambda: n.nvmlDeviceGetComputeMode(h),
        "pcie_max_generation": lambda: n.nvmlDeviceGetMaxPcieLinkGeneration(h),
        "pcie_max_width": lambda: n.nvmlDeviceGetMaxPcieLinkWidth(h),
        "vbios": lambda: _text(n.nvmlDeviceGetVbiosVersion(h)),
        "gpu_uuid_hash": lambda: hashed(_text(n.nvmlDeviceGetUUID(h))),
        "sm_mhz": lambda: n.nvmlDeviceGetClockInfo(h, sm),
        "memory_mhz": lambda: n.nvmlDeviceGetClockInfo(h, mem),
        "temperature_c": lambda: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
        "power_w": lambda: n.nvmlDeviceGetPowerUsage(h) / 1000,
        "energy_mj": lambda: n.nvmlDeviceGetTotalEnergyConsumption(h),
        "clock_event_reasons": lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        "performance_state": lambda: n.nvmlDeviceGetPerformanceState(h),
        "memory_used_bytes": lambda: int(n.nvmlDeviceGetMemoryInfo(h).used),
    }


def _gpu() -> dict[str, Any]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"gpu_name": entry(None, "nvmlInit", f"absent: {error}")}
    values: dict[str, Any] = {}
    system = {
        "driver": pynvml.nvmlSystemGetDriverVersion,
        "nvml": pynvml.nvmlSystemGetNVMLVersion,
        "cuda_driver": pynvml.nvmlSystemGetCudaDriverVersion_v2,
    }
    for name, query in system.items():
        values[name] = _ask(name, query)
    try:
        uuid = settings.visible_gpu()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        return values | {"gpu_name": entry(None, "nvml", f"absent: {error}")}
    for name, query in queries(handle).items():
        values[name] = _ask(name, query)
    clock, bus = values["max_memory_mhz"]["value"], values["memory_bus_bits"]["value"]
    if clock and bus:
        values["bandwidth_signature_gb_s"] = entry(2 * clock * bus / 8000, "2 * max_memory_mhz * memory_bus_bits")
    return values


def _ask(name: str, query: Callable[[], Any]) -> dict[str, Any]:
    try:
        return entry(query(), f"nvml {name}")
    except pynvml.NVMLError as error:
        return entry(None, f"nvml {name}", STATUS.get(getattr(error, "value", None), str(error)))


def _cpu() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu_model": entry(model, "/proc/cpuinfo", "ok" if model else "absent"),
        "cpu_count": entry(len(os.sched_getaffinity(0)), "sched_getaffinity"),
        "memory_gib": entry(round(memory / 2**30), "sysconf"),
        "kernel": entry(platform.release(), "uname"),
        "machine": entry(platform.machine(), "uname"),
    }


def values(device: str) -> dict[str, Any]:
    """Hardware values; without a GPU only the host's part, with a `gpu_name` that says why."""
    if device == "cuda":
        return _gpu() | _cpu()
    return {"gpu_name": entry(None, "device cpu", "absent: the run used the CPU")} | _cpu()
