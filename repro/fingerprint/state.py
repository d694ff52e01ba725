"""The state of a GPU at one moment: clocks, power, temperatures, counters, other processes. All of class D."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from repro.fingerprint import nvml
from repro.fingerprint.entry import entry
from repro.fingerprint.nvml import ask, plain
from repro.records.fingerprint import Found

# Bits of clock_event_reasons; source: nvml.h, the same in every release.
REASONS = {
    0x1: "idle", 0x2: "clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_setting",
}  # fmt: skip
MEMORY_TEMPERATURE, POWER_INSTANT = 82, 186

QUERIES: dict[str, tuple[str, tuple[Any, ...], Callable[[Any], Any]]] = {
    "sm_mhz": ("ClockInfo", (pynvml.NVML_CLOCK_SM,), plain),
    "memory_mhz": ("ClockInfo", (pynvml.NVML_CLOCK_MEM,), plain),
    "temperature_c": ("Temperature", (pynvml.NVML_TEMPERATURE_GPU,), plain),
    "power_w": ("PowerUsage", (), lambda milliwatts: milliwatts / 1000),
    "energy_mj": ("TotalEnergyConsumption", (), plain),
    "performance_state": ("PerformanceState", (), plain),
    "memory_used_bytes": ("MemoryInfo", (), lambda memory: int(memory.used)),
    "utilization_percent": ("UtilizationRates", (), lambda rates: [rates.gpu, rates.memory]),
    "pcie_generation": ("CurrPcieLinkGeneration", (), plain),
    "pcie_width": ("CurrPcieLinkWidth", (), plain),
    "pcie_replays": ("PcieReplayCounter", (), plain),
    "compute_processes": ("ComputeRunningProcesses", (), len),
    "graphics_processes": ("GraphicsRunningProcesses", (), len),
    "mps_processes": ("MPSComputeRunningProcesses", (), len),
}

# Time for which a policy held the clocks down, ns since the driver was loaded. Its delta includes events between
# samples.
VIOLATIONS = {
    "violation_power_ns": pynvml.NVML_PERF_POLICY_POWER,
    "violation_thermal_ns": pynvml.NVML_PERF_POLICY_THERMAL,
    "violation_sync_boost_ns": pynvml.NVML_PERF_POLICY_SYNC_BOOST,
    "violation_board_limit_ns": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    "violation_low_utilization_ns": pynvml.NVML_PERF_POLICY_LOW_UTILIZATION,
    "violation_reliability_ns": pynvml.NVML_PERF_POLICY_RELIABILITY,
    "violation_application_clocks_ns": pynvml.NVML_PERF_POLICY_TOTAL_APP_CLOCKS,
    "violation_base_clocks_ns": pynvml.NVML_PERF_POLICY_TOTAL_BASE_CLOCKS,
}
COUNTERS = ("energy_mj", "pcie_replays", *VIOLATIONS)
NAMES = (*QUERIES, *VIOLATIONS, "clock_event_reasons", "memory_temperature_c", "power_instant_w")


def reasons(handle: Any) -> Found:
    """Return the bit mask of `REASONS`; a driver before 535 knows it by its older name."""
    found = ask("DeviceGetCurrentClocksEventReasons", handle)
    return found if found.status == "ok" else ask("DeviceGetCurrentClocksThrottleReasons", handle)


def names(mask: int) -> list[str]:
    """Return the names of a mask's bits; unknown bits together as a number."""
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return known + ([hex(rest)] if rest else [])


def values(handle: Any) -> dict[str, Found]:
    """Return every dynamic field now."""
    found = {name: ask(f"DeviceGet{f}", handle, *given, take=take) for name, (f, given, take) in QUERIES.items()}
    for name, policy in VIOLATIONS.items():
        found[name] = ask("DeviceGetViolationStatus", handle, policy, take=lambda told: int(told.violationTime))
    found["clock_event_reasons"] = reasons(handle)
    found["memory_temperature_c"] = nvml.field(handle, MEMORY_TEMPERATURE)
    found["power_instant_w"] = nvml.field(handle, POWER_INSTANT, lambda milliwatts: milliwatts / 1000)
    return found


@dataclass(frozen=True)
class Snapshot:
    """The state at a time by `time.monotonic`."""

    t_s: float
    values: dict[str, Found]


def snapshot(device: str, uuid: str = "") -> Snapshot:
    """Return the state now. Without a GPU the values say why."""
    now = time.monotonic()
    if device != "cuda":
        return Snapshot(now, {"sm_mhz": entry(None, "device cpu", "absent: the run used the CPU")})
    told = nvml.start()
    handle, why = (None, told) if told else nvml.device(uuid)
    if handle is None:
        return Snapshot(now, {"sm_mhz": entry(None, "nvml", why)})
    return Snapshot(now, values(handle))


def deltas(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Return the counters' changes between two snapshots, the seconds between them, and why a counter is missing."""
    found: dict[str, Any] = {"seconds": round(after.t_s - before.t_s, 3)}
    for name in COUNTERS:
        a, b = before.values.get(name), after.values.get(name)
        if a is None or b is None:
            continue
        known = a.value is not None and b.value is not None
        found[name] = b.value - a.value if known else (a.status if a.value is None else b.status)
    return found
