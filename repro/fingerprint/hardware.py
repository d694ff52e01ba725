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


def entry(value: Any, source: str, klass: str, status: str = "ok") -> dict[str, Any]:
    """One fingerprint value; an empty one is never `ok`."""
    status = "absent" if value is None and status == "ok" else status
    return {"value": value, "source": source, "status": status, "class": klass}


def hashed(identity: str) -> str:
    """An identity as a salted hash of 12 hexadecimal digits."""
    return hashlib.sha256(f"{IDENTITY_SALT}|{identity}".encode()).hexdigest()[:12]


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _queries(h: Any) -> dict[str, tuple[str, Callable[[], Any]]]:
    """name -> (class, query). Every query may raise NVMLError; what it raises is recorded."""
    n = pynvml
    sm, mem = n.NVML_CLOCK_SM, n.NVML_CLOCK_MEM
    return {
        "gpu_name": ("H", lambda: _text(n.nvmlDeviceGetName(h))),
        "compute_capability": ("H", lambda: ".".join(map(str, n.nvmlDeviceGetCudaComputeCapability(h)))),
        "board_part_number": ("H", lambda: _text(n.nvmlDeviceGetBoardPartNumber(h))),
        "cuda_cores": ("H", lambda: n.nvmlDeviceGetNumGpuCores(h)),
        "memory_total_bytes": ("H", lambda: int(n.nvmlDeviceGetMemoryInfo(h).total)),
        "memory_bus_bits": ("H", lambda: n.nvmlDeviceGetMemoryBusWidth(h)),
        "max_sm_mhz": ("H", lambda: n.nvmlDeviceGetMaxClockInfo(h, sm)),
        "max_memory_mhz": ("H", lambda: n.nvmlDeviceGetMaxClockInfo(h, mem)),
        "mig_mode": ("H", lambda: n.nvmlDeviceGetMigMode(h)[0]),
        "virtualization_mode": ("H", lambda: n.nvmlDeviceGetVirtualizationMode(h)),
        "power_limit_w": ("C", lambda: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
        "power_limit_default_w": ("C", lambda: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000),
        "application_sm_mhz": ("C", lambda: n.nvmlDeviceGetApplicationsClock(h, sm)),
        "application_memory_mhz": ("C", lambda: n.nvmlDeviceGetApplicationsClock(h, mem)),
        "ecc": ("C", lambda: bool(n.nvmlDeviceGetEccMode(h)[0])),
        "persistence": ("C", lambda: bool(n.nvmlDeviceGetPersistenceMode(h))),
        "compute_mode": ("C", lambda: n.nvmlDeviceGetComputeMode(h)),
        "pcie_max_generation": ("C", lambda: n.nvmlDeviceGetMaxPcieLinkGeneration(h)),
        "pcie_max_width": ("C", lambda: n.nvmlDeviceGetMaxPcieLinkWidth(h)),
        "vbios": ("V", lambda: _text(n.nvmlDeviceGetVbiosVersion(h))),
        "gpu_uuid_hash": ("I", lambda: hashed(_text(n.nvmlDeviceGetUUID(h)))),
        "sm_mhz": ("D", lambda: n.nvmlDeviceGetClockInfo(h, sm)),
        "memory_mhz": ("D", lambda: n.nvmlDeviceGetClockInfo(h, mem)),
        "temperature_c": ("D", lambda: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
        "power_w": ("D", lambda: n.nvmlDeviceGetPowerUsage(h) / 1000),
        "energy_mj": ("D", lambda: n.nvmlDeviceGetTotalEnergyConsumption(h)),
        "clock_event_reasons": ("D", lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
        "performance_state": ("D", lambda: n.nvmlDeviceGetPerformanceState(h)),
        "memory_used_bytes": ("D", lambda: int(n.nvmlDeviceGetMemoryInfo(h).used)),
    }


def _gpu() -> dict[str, Any]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"gpu_name": entry(None, "nvmlInit", "H", f"absent: {error}")}
    values: dict[str, Any] = {}
    system = {
        "driver": pynvml.nvmlSystemGetDriverVersion,
        "nvml": pynvml.nvmlSystemGetNVMLVersion,
        "cuda_driver": pynvml.nvmlSystemGetCudaDriverVersion_v2,
    }
    for name, query in system.items():
        values[name] = _ask(name, "V", query)
    try:
        uuid = settings.visible_gpu()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        return values | {"gpu_name": entry(None, "nvml", "H", f"absent: {error}")}
    for name, (klass, query) in _queries(handle).items():
        values[name] = _ask(name, klass, query)
    clock, bus = values["max_memory_mhz"]["value"], values["memory_bus_bits"]["value"]
    if clock and bus:
        values["bandwidth_signature_gb_s"] = entry(2 * clock * bus / 8000, "2 * max_memory_mhz * memory_bus_bits", "H")
    return values


def _ask(name: str, klass: str, query: Callable[[], Any]) -> dict[str, Any]:
    try:
        return entry(query(), f"nvml {name}", klass)
    except pynvml.NVMLError as error:
        return entry(None, f"nvml {name}", klass, STATUS.get(getattr(error, "value", None), str(error)))


def _cpu() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu_model": entry(model, "/proc/cpuinfo", "C", "ok" if model else "absent"),
        "cpu_count": entry(len(os.sched_getaffinity(0)), "sched_getaffinity", "C"),
        "memory_gib": entry(round(memory / 2**30), "sysconf", "C"),
        "kernel": entry(platform.release(), "uname", "V"),
        "machine": entry(platform.machine(), "uname", "H"),
    }


def values(device: str) -> dict[str, Any]:
    """Hardware values; without a GPU only the host's part, with a `gpu_name` that says why."""
    if device == "cuda":
        return _gpu() | _cpu()
    return {"gpu_name": entry(None, "device cpu", "H", "absent: the run used the CPU")} | _cpu()
