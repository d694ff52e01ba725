"""The class of every fingerprint field, which says what a difference in it means.

    I  identity       another unit of the same kind; stored as a hash
    H  hard           another kind of machine: absolute times do not compare
    C  configuration  may change speed: reported with every comparison
    D  dynamic        the machine's state at that moment
    V  version        software and firmware

To add a field, add it here; it is then stamped, hashed into the ids of a fingerprint and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.records.fingerprint import Found

NAMES = {"I": "identity", "H": "hard", "C": "configuration", "D": "dynamic", "V": "version"}

FIELDS: dict[str, tuple[str, ...]] = {
    "I": ("gpu_uuid_hash", "gpu_serial_hash", "pci_bus_hash", "minor_number_hash", "board_id_hash"),
    "H": (
        "gpu_name", "brand", "architecture", "compute_capability", "board_part_number", "cuda_cores",
        "memory_total_bytes", "memory_bus_bits", "max_sm_mhz", "max_memory_mhz", "bandwidth_signature_gb_s", "mig_mode",
        "mig_attributes", "virtualization_mode", "multi_processor_count", "l2_cache_size",
        "shared_memory_per_multiprocessor", "regs_per_multiprocessor", "machine",
    ),
    "C": (
        "mig_mode_pending", "memory_reserved_bytes", "power_limit_w", "power_limit_set_w", "power_limit_default_w",
        "power_limit_range_w", "application_sm_mhz", "application_memory_mhz", "default_application_sm_mhz",
        "default_application_memory_mhz", "customer_boost_sm_mhz", "customer_boost_memory_mhz", "locked_clocks",
        "clock_offset_sm_mhz", "clock_offset_memory_mhz", "sm_vf_offset_mhz", "memory_vf_offset_mhz", "auto_boost",
        "ecc", "ecc_pending", "remapped_rows", "retired_pages_single", "retired_pages_double", "persistence",
        "compute_mode", "driver_model", "gsp_firmware_mode", "confidential_compute", "pcie_max_generation",
        "pcie_max_width", "bar1_bytes", "nvlinks", "nvlink_version", "c2c", "gpu_numa_node", "gpu_cpus", "cpu_model",
        "cpu_count", "cpu_governor", "cpu_quota", "numa_nodes", "memory_gib", "memory_limit", "cudnn_benchmark",
        "cudnn_deterministic", "cudnn_tf32", "matmul_tf32", "matmul_precision", "deterministic", "allocator",
        "environment", "environment_withheld", "visible_devices", "compile_caches",
    ),
    "D": (
        "sm_mhz", "memory_mhz", "temperature_c", "memory_temperature_c", "power_w", "power_instant_w", "energy_mj",
        "clock_event_reasons", "performance_state", "memory_used_bytes", "utilization_percent", "pcie_generation",
        "pcie_width", "pcie_replays", "compute_processes", "graphics_processes", "mps_processes", "violation_power_ns",
        "violation_thermal_ns", "violation_sync_boost_ns", "violation_board_limit_ns", "violation_low_utilization_ns",
        "violation_reliability_ns", "violation_application_clocks_ns", "violation_base_clocks_ns", "load_1m",
        "container_id",
    ),
    "V": (
        "driver", "driver_branch", "kernel_module", "nvml", "cuda_driver", "vbios", "inforom", "gsp_firmware", "kernel",
        "distribution", "repro", "python", "numpy", "nvidia_ml_py", "tabulate", "rich", "python_dotenv",
        "nvidia_packages", "torch", "torch_git", "torch_cxx11_abi", "cuda_runtime", "cudnn", "triton", "ptxas_sha256",
        "ptxas_version", "ptxas_bundled", "nvcc", "nvdisasm", "ncu", "gcc", "compiler_chosen", "git_commit",
        "git_dirty", "image_id", "repo_digests", "base_name", "base_digest", "engine", "engine_version", "engine_api",
        "runtime", "toolkit", "cgroup", "engine_os", "system_packages_sha256",
    ),
}  # fmt: skip
CLASS = {name: klass for klass, names in FIELDS.items() for name in names}

# Configuration that makes another machine if its values differ by more than this share of the larger one: a GPU held to
# nine tenths of its power runs at other clocks.
HARD_BEYOND = {"power_limit_w": 0.10}


def of(name: str, entry: dict[str, Any] | None = None) -> str:
    """Return a field's class: the table's, else the one stored with the entry, else V."""
    return CLASS.get(name) or str((entry or {}).get("class", "V"))


def stamped(values: Mapping[str, Found]) -> dict[str, dict[str, Any]]:
    """Return every entry with its class, as plain data."""
    return {name: entry.to_json() | {"class": of(name)} for name, entry in values.items()}
