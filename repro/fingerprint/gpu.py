"""What one GPU is and how it is set: all that NVML tells of it but its state, which is `state`'s."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from repro.fingerprint import nvml
from repro.fingerprint.entry import entry, hashed
from repro.fingerprint.nvml import ask, plain
from repro.records.fingerprint import Found

Take = Callable[[Any], Any]
SM, MEMORY = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
ARCHITECTURES = {7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell", 13: "Rubin", 5: "Volta", 6: "Turing"}
LOCKED = "not_supported: NVML has no query of locked clocks; bit 0x2 of clock_event_reasons tells while work runs"


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _first(values: Any) -> Any:
    return values[0]


def _second(values: Any) -> Any:
    return values[1]


def _set(nodes: Any) -> str:
    """A bit mask of CPUs as hexadecimal digits."""
    return f"{sum(int(word) << (64 * n) for n, word in enumerate(nodes)):x}"


# name -> (function after nvmlDeviceGet, arguments after the handle, what of the answer is the value)
QUERIES: dict[str, tuple[str, tuple[Any, ...], Take]] = {
    "gpu_name": ("Name", (), plain),
    "brand": ("Brand", (), plain),
    "architecture": ("Architecture", (), lambda code: ARCHITECTURES.get(code, str(code))),
    "compute_capability": ("CudaComputeCapability", (), lambda pair: ".".join(map(str, pair))),
    "board_part_number": ("BoardPartNumber", (), plain),
    "cuda_cores": ("NumGpuCores", (), plain),
    "memory_total_bytes": ("MemoryInfo", (), lambda memory: int(memory.total)),
    "memory_bus_bits": ("MemoryBusWidth", (), plain),
    "max_sm_mhz": ("MaxClockInfo", (SM,), plain),
    "max_memory_mhz": ("MaxClockInfo", (MEMORY,), plain),
    "mig_mode": ("MigMode", (), _first),
    "mig_attributes": ("Attributes_v2", (), lambda a: [a.multiprocessorCount, a.gpuInstanceSliceCount, a.memorySizeMB]),
    "virtualization_mode": ("VirtualizationMode", (), plain),
    "mig_mode_pending": ("MigMode", (), _second),
    "memory_reserved_bytes": ("MemoryInfo", (pynvml.nvmlMemory_v2,), lambda memory: int(memory.reserved)),
    "power_limit_w": ("EnforcedPowerLimit", (), _watts),
    "power_limit_set_w": ("PowerManagementLimit", (), _watts),
    "power_limit_default_w": ("PowerManagementDefaultLimit", (), _watts),
    "power_limit_range_w": ("PowerManagementLimitConstraints", (), lambda pair: [_watts(limit) for limit in pair]),
    "application_sm_mhz": ("ApplicationsClock", (SM,), plain),
    "application_memory_mhz": ("ApplicationsClock", (MEMORY,), plain),
    "default_application_sm_mhz": ("DefaultApplicationsClock", (SM,), plain),
    "default_application_memory_mhz": ("DefaultApplicationsClock", (MEMORY,), plain),
    "customer_boost_sm_mhz": ("MaxCustomerBoostClock", (SM,), plain),
    "customer_boost_memory_mhz": ("MaxCustomerBoostClock", (MEMORY,), plain),
    "sm_vf_offset_mhz": ("GpcClkVfOffset", (), plain),
    "memory_vf_offset_mhz": ("MemClkVfOffset", (), plain),
    "auto_boost": ("AutoBoostedClocksEnabled", (), lambda pair: bool(pair[0])),
    "ecc": ("EccMode", (), lambda pair: bool(pair[0])),
    "ecc_pending": ("EccMode", (), lambda pair: bool(pair[1])),
    "remapped_rows": ("RemappedRows", (), list),
    "retired_pages_single": ("RetiredPages", (pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,), len),
    "retired_pages_double": ("RetiredPages", (pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,), len),
    "persistence": ("PersistenceMode", (), bool),
    "compute_mode": ("ComputeMode", (), plain),
    "driver_model": ("DriverModel", (), _first),
    "gsp_firmware_mode": ("GspFirmwareMode", (), list),
    "pcie_max_generation": ("MaxPcieLinkGeneration", (), plain),
    "pcie_max_width": ("MaxPcieLinkWidth", (), plain),
    "bar1_bytes": ("BAR1MemoryInfo", (), lambda memory: int(memory.bar1Total)),
    "c2c": ("C2cModeInfoV", (), lambda info: bool(info.isC2cEnabled)),
    "gpu_numa_node": ("NumaNodeId", (), plain),
    "gpu_cpus": ("CpuAffinity", (16,), _set),
    "vbios": ("VbiosVersion", (), plain),
    "inforom": ("InforomImageVersion", (), plain),
    "gsp_firmware": ("GspFirmwareVersion", (), plain),
}  # fmt: skip

# Values that identify a single unit; only hashes of them are stored.
IDENTITIES: dict[str, tuple[str, Take]] = {
    "gpu_serial_hash": ("Serial", plain),
    "pci_bus_hash": ("PciInfo_v3", lambda pci: plain(pci.busId)),
    "minor_number_hash": ("MinorNumber", plain),
    "board_id_hash": ("BoardId", plain),
}

SYSTEM: dict[str, tuple[str, Take]] = {
    "driver": ("SystemGetDriverVersion", plain),
    "driver_branch": ("SystemGetDriverBranch", lambda info: plain(info.branch)),
    "nvml": ("SystemGetNVMLVersion", plain),
    "cuda_driver": ("SystemGetCudaDriverVersion_v2", plain),
    "confidential_compute": ("SystemGetConfComputeState", lambda state: int(state.ccFeature)),
}


def system() -> dict[str, Found]:
    """Return driver, NVML and CUDA versions, confidential computing, and whether the kernel module is the open one."""
    found = {name: ask(function, take=take) for name, (function, take) in SYSTEM.items()}
    try:
        line = KERNEL_MODULE.read_text().splitlines()[0]
        told = entry("open" if "Open" in line else "proprietary", str(KERNEL_MODULE))
    except (OSError, IndexError) as error:
        told = entry(None, str(KERNEL_MODULE), f"absent: {getattr(error, 'strerror', None) or error}")
    return found | {"kernel_module": told}


def _identities(handle: Any) -> dict[str, Found]:
    uuid = ask("DeviceGetUUID", handle)
    known = uuid.value
    found = {"gpu_uuid_hash": uuid.model_copy(update={"value": hashed(str(known)) if known else None})}
    for name, (function, take) in IDENTITIES.items():
        told = ask(f"DeviceGet{function}", handle, take=take)
        status = told.status
        if told.value is not None and not known:
            status = "absent: hashed only together with a UUID, and there is none"
        value = hashed(f"{name}|{told.value}", of=str(known)) if known and told.value is not None else None
        found[name] = told.model_copy(update={"value": value, "status": status})
    return found


def _links(handle: Any) -> dict[str, Found]:
    """Return how many NVLinks are up, and the version of the first. The count ends at a link that does not answer."""
    up = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        told = ask("DeviceGetNvLinkState", handle, link)
        if told.value is None:
            if link == 0:
                return {"nvlinks": told}
            break
        up += bool(told.value)
    return {
        "nvlinks": entry(up, "nvmlDeviceGetNvLinkState"),
        "nvlink_version": ask("DeviceGetNvLinkVersion", handle, 0),
    }


def values(handle: Any) -> dict[str, Found]:
    """Return every field except the dynamic ones. A missing value has its status and the reason."""
    found = {name: ask(f"DeviceGet{f}", handle, *given, take=take) for name, (f, given, take) in QUERIES.items()}
    found |= _links(handle)
    found["clock_offset_sm_mhz"] = nvml.clock_offset(handle, SM)
    found["clock_offset_memory_mhz"] = nvml.clock_offset(handle, MEMORY)
    found["locked_clocks"] = entry(None, "nvml", LOCKED)
    clock, bus = found["max_memory_mhz"].value, found["memory_bus_bits"].value
    signature = 2 * clock * bus / 8000 if clock and bus else None
    status = "ok" if signature else "absent: one of the two is"
    found["bandwidth_signature_gb_s"] = entry(signature, "2 * max_memory_mhz * memory_bus_bits", status)
    return found | _identities(handle)
