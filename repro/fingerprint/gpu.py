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
from repro.fingerprint.query import Answers, Class, Query, answers, hashed, why
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


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _nvml(name: str, klass: Class, function: str, *given: Any, take: _Take = lambda value: value) -> Query:
    """Return a query of one NVML function, by its name after `nvml`. take: extracts the value from the answer."""
    return Query(name, klass, lambda *of: take(getattr(pynvml, f"nvml{function}")(*of, *given)), f"nvml{function}")


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
    _nvml("gpu_name", "H", "DeviceGetName"),
    _nvml("brand", "H", "DeviceGetBrand"),
    _nvml("architecture", "H", "DeviceGetArchitecture", take=lambda code: _ARCHITECTURES.get(code, str(code))),
    _nvml("compute_capability", "H", "DeviceGetCudaComputeCapability", take=lambda pair: ".".join(map(str, pair))),
    _nvml("board_part_number", "H", "DeviceGetBoardPartNumber"),
    _nvml("cuda_cores", "H", "DeviceGetNumGpuCores"),
    _nvml("memory_total_bytes", "H", "DeviceGetMemoryInfo", take=lambda memory: int(memory.total)),
    _nvml("memory_bus_bits", "H", "DeviceGetMemoryBusWidth"),
    _nvml("max_sm_mhz", "H", "DeviceGetMaxClockInfo", SM),
    _nvml("max_memory_mhz", "H", "DeviceGetMaxClockInfo", MEMORY),
    Query("bandwidth_signature_gb_s", "H", _bandwidth, "2 * max_memory_mhz * memory_bus_bits"),
    _nvml("mig_mode", "H", "DeviceGetMigMode", take=lambda pair: pair[0]),
    _nvml("mig_attributes", "H", "DeviceGetAttributes_v2",
            take=lambda a: [a.multiprocessorCount, a.gpuInstanceSliceCount, a.memorySizeMB]),
    _nvml("virtualization_mode", "H", "DeviceGetVirtualizationMode"),
    _nvml("power_limit_w", "C", "DeviceGetEnforcedPowerLimit", take=_watts),
    _nvml("power_limit_default_w", "C", "DeviceGetPowerManagementDefaultLimit", take=_watts),
    _nvml("ecc", "C", "DeviceGetEccMode", take=lambda pair: bool(pair[0])),
    _nvml("persistence", "C", "DeviceGetPersistenceMode", take=bool),
    _nvml("vbios", "V", "DeviceGetVbiosVersion"),
    _nvml("gpu_uuid_hash", "I", "DeviceGetUUID", take=hashed),
)  # fmt: skip
# violation_…: time for which a policy held the clocks down, since the driver was loaded. Its delta includes events
# between samples.
STATE = (
    _nvml("sm_mhz", "D", "DeviceGetClockInfo", SM),
    _nvml("memory_mhz", "D", "DeviceGetClockInfo", MEMORY),
    _nvml("temperature_c", "D", "DeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
    _nvml("power_w", "D", "DeviceGetPowerUsage", take=_watts),
    _nvml("energy_mj", "D", "DeviceGetTotalEnergyConsumption"),
    Query("clock_event_reasons", "D", event_reasons, "nvmlDeviceGetCurrentClocksEventReasons"),
    _nvml("memory_used_bytes", "D", "DeviceGetMemoryInfo", take=lambda memory: int(memory.used)),
    _nvml("compute_processes", "D", "DeviceGetComputeRunningProcesses", take=len),
    _nvml("graphics_processes", "D", "DeviceGetGraphicsRunningProcesses", take=len),
    _nvml("mps_processes", "D", "DeviceGetMPSComputeRunningProcesses", take=len),
    _nvml("violation_power_ns", "D", "DeviceGetViolationStatus", pynvml.NVML_PERF_POLICY_POWER,
            take=lambda status: int(status.violationTime)),
    _nvml("violation_thermal_ns", "D", "DeviceGetViolationStatus", pynvml.NVML_PERF_POLICY_THERMAL,
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


def _missing(name: str, status: str) -> Answers:
    """Return the one answer that says why there are no others."""
    query = next(query for query in (*FIELDS, *STATE) if query.name == name)
    return {name: query.value(None, status)}


def _asked(name: str, queries: tuple[Query, ...], device_kind: str, uuid: str = "") -> Answers:
    """Return the answers about one GPU, or the field `name` with the reason why NVML does not answer."""
    if device_kind != "cuda":
        return _missing(name, "absent: the run used the CPU")
    handle, reason = device(uuid)
    return _missing(name, reason) if handle is None else answers(queries, handle)


def values(device_kind: str) -> Answers:
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
    values: Answers


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
