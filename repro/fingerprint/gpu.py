"""What NVML says of one GPU: what it is and how it is set (`FIELDS`), and its state at one moment (`STATE`).

A function may not exist for this GPU or in this driver, and a container may lack a right: each becomes a status with
its reason. Source: pynvml.py of nvidia-ml-py 13.615.71.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from repro import config
from repro.fingerprint.query import Class, Query, answers, hashed, why
from repro.records.fingerprint import Value
from repro.system.jsonio import Json

# Bits of clock_event_reasons; source: nvml.h, the same in every release.
REASONS = {
    0x1: "idle", 0x2: "clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_setting",
}  # fmt: skip
# Reasons by which a GPU protects itself from heat or a failing supply: times meanwhile are not a measurement. A power
# cap alone is normal for a large GPU.
THROTTLED = ("sw_thermal", "hw_thermal", "hw_power_brake")
# A throttled GPU counts as cooled down below it.
_COOL_C = 60
SM, MEMORY = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
_ARCHITECTURES = {7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell", 13: "Rubin", 5: "Volta", 6: "Turing"}

_Take = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _nvml(name: str, klass: Class, function: str, *given: Any, take: _Take = _same) -> Query:
    """Return a query of one NVML function, by its name after `nvml`. take: extracts the value from the answer."""
    return Query(name, klass, lambda *of: take(getattr(pynvml, f"nvml{function}")(*of, *given)), f"nvml{function}")


def _device(name: str, klass: Class, function: str, *given: Any, take: _Take = _same) -> Query:
    return _nvml(name, klass, f"DeviceGet{function}", *given, take=take)


def _bandwidth(handle: Any) -> float:
    clock, bits = pynvml.nvmlDeviceGetMaxClockInfo(handle, MEMORY), pynvml.nvmlDeviceGetMemoryBusWidth(handle)
    return float(2 * clock * bits / 8000)


def event_reasons(handle: Any) -> int:
    """Return the bit mask of `REASONS`; a driver before 535 knows it by its older name."""
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (pynvml.NVMLError, AttributeError):
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


SYSTEM = (
    _nvml("driver", "V", "SystemGetDriverVersion"),
    _nvml("cuda_driver", "V", "SystemGetCudaDriverVersion_v2"),
)
FIELDS = (
    _device("gpu_name", "H", "Name"),
    _device("brand", "H", "Brand"),
    _device("architecture", "H", "Architecture", take=lambda code: _ARCHITECTURES.get(code, str(code))),
    _device("compute_capability", "H", "CudaComputeCapability", take=lambda pair: ".".join(map(str, pair))),
    _device("board_part_number", "H", "BoardPartNumber"),
    _device("cuda_cores", "H", "NumGpuCores"),
    _device("memory_total_bytes", "H", "MemoryInfo", take=lambda memory: int(memory.total)),
    _device("memory_bus_bits", "H", "MemoryBusWidth"),
    _device("max_sm_mhz", "H", "MaxClockInfo", SM),
    _device("max_memory_mhz", "H", "MaxClockInfo", MEMORY),
    Query("bandwidth_signature_gb_s", "H", _bandwidth, "2 * max_memory_mhz * memory_bus_bits"),
    _device("mig_mode", "H", "MigMode", take=lambda pair: pair[0]),
    _device("mig_attributes", "H", "Attributes_v2",
            take=lambda a: [a.multiprocessorCount, a.gpuInstanceSliceCount, a.memorySizeMB]),
    _device("virtualization_mode", "H", "VirtualizationMode"),
    _device("power_limit_w", "C", "EnforcedPowerLimit", take=_watts),
    _device("power_limit_default_w", "C", "PowerManagementDefaultLimit", take=_watts),
    _device("ecc", "C", "EccMode", take=lambda pair: bool(pair[0])),
    _device("persistence", "C", "PersistenceMode", take=bool),
    _device("vbios", "V", "VbiosVersion"),
    _device("gpu_uuid_hash", "I", "UUID", take=lambda uuid: hashed(uuid)),
)  # fmt: skip
# violation_…: time for which a policy held the clocks down, since the driver was loaded. Its delta includes events
# between samples.
STATE = (
    _device("sm_mhz", "D", "ClockInfo", SM),
    _device("memory_mhz", "D", "ClockInfo", MEMORY),
    _device("temperature_c", "D", "Temperature", pynvml.NVML_TEMPERATURE_GPU),
    _device("power_w", "D", "PowerUsage", take=_watts),
    _device("energy_mj", "D", "TotalEnergyConsumption"),
    Query("clock_event_reasons", "D", event_reasons, "nvmlDeviceGetCurrentClocksEventReasons"),
    _device("memory_used_bytes", "D", "MemoryInfo", take=lambda memory: int(memory.used)),
    _device("compute_processes", "D", "ComputeRunningProcesses", take=len),
    _device("graphics_processes", "D", "GraphicsRunningProcesses", take=len),
    _device("mps_processes", "D", "MPSComputeRunningProcesses", take=len),
    _device("violation_power_ns", "D", "ViolationStatus", pynvml.NVML_PERF_POLICY_POWER,
            take=lambda status: int(status.violationTime)),
    _device("violation_thermal_ns", "D", "ViolationStatus", pynvml.NVML_PERF_POLICY_THERMAL,
            take=lambda status: int(status.violationTime)),
)  # fmt: skip
_COUNTERS = ("energy_mj", "violation_power_ns", "violation_thermal_ns")


def start() -> str:
    """Initialise NVML. Return why it cannot be used, or the empty string."""
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return why(error)
    return ""


def device(uuid: str = "") -> tuple[Any, str]:
    """Start NVML, and return (handle, why there is none) of the GPU with this UUID.

    Without a UUID it is the GPU that this process was given, else the first.
    """
    uuid = uuid or config.visible_gpu()
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0), ""
    except Exception as error:
        return None, why(error)


def _missing(name: str, status: str) -> dict[str, Value]:
    """Return the one answer that says why there are no others."""
    query = next(query for query in (*FIELDS, *STATE) if query.name == name)
    return {name: query.value(None, status)}


def _asked(name: str, queries: tuple[Query, ...], device_kind: str, uuid: str = "") -> dict[str, Value]:
    """Return the answers about one GPU, or the field `name` with the reason why NVML does not answer."""
    if device_kind != "cuda":
        return _missing(name, "absent: the run used the CPU")
    handle, reason = device(uuid)
    return _missing(name, reason) if handle is None else answers(queries, handle)


def values(device_kind: str) -> dict[str, Value]:
    """Return everything that NVML reports, or a `gpu_name` with the reason why it does not answer."""
    system = answers(SYSTEM) if device_kind == "cuda" and not start() else {}
    return system | _asked("gpu_name", (*FIELDS, *STATE), device_kind)


def reasons(mask: int) -> list[str]:
    """Return the names of a mask's bits; unknown bits together as a number."""
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return known + ([hex(rest)] if rest else [])


@dataclass(frozen=True)
class Snapshot:
    """The state at a time by `time.monotonic`."""

    t_s: float
    values: dict[str, Value]


def snapshot(device_kind: str, uuid: str = "") -> Snapshot:
    """Return the state now. Without a GPU the values say why."""
    return Snapshot(time.monotonic(), _asked("sm_mhz", STATE, device_kind, uuid))


def cool(uuid: str) -> bool:
    """Return whether a GPU has at most _COOL_C and is not throttled now; False if NVML does not say so."""
    now = snapshot("cuda", uuid).values
    heat, mask = (now[name].value if name in now else None for name in ("temperature_c", "clock_event_reasons"))
    return heat is not None and mask is not None and heat <= _COOL_C and not {*THROTTLED} & {*reasons(mask)}


def deltas(before: Snapshot, after: Snapshot) -> Json:
    """Return the counters' changes between two snapshots, the seconds between them, and why a counter is missing."""
    changes: Json = {"seconds": round(after.t_s - before.t_s, 3)}
    for name in _COUNTERS:
        a, b = before.values.get(name), after.values.get(name)
        if a is not None and b is not None:
            known = a.value is not None and b.value is not None
            changes[name] = b.value - a.value if known else (a.status if a.value is None else b.status)
    return changes
