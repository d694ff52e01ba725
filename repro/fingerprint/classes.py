"""The class of every fingerprint field: what a difference in it means. The one place that says so.

    I  identity       another unit of the same kind; stored as a hash
    H  hard           another kind of machine: absolute times do not compare
    C  configuration  may change speed: told beside every comparison
    D  dynamic        the machine's state at that moment
    V  version        software and firmware

A new field gets its line here and is then stamped, hashed into the ids of a fingerprint and compared.
"""

from __future__ import annotations

from typing import Any

NAMES = {"I": "identity", "H": "hard", "C": "configuration", "D": "dynamic", "V": "version"}

FIELDS: dict[str, tuple[str, ...]] = {
    "I": ("gpu_uuid_hash",),
    "H": (
        "gpu_name", "compute_capability", "board_part_number", "cuda_cores", "memory_total_bytes", "memory_bus_bits",
        "max_sm_mhz", "max_memory_mhz", "bandwidth_signature_gb_s", "mig_mode", "virtualization_mode",
        "multi_processor_count", "l2_cache_size", "shared_memory_per_multiprocessor", "machine",
    ),
    "C": (
        "power_limit_w", "power_limit_default_w", "application_sm_mhz", "application_memory_mhz", "ecc", "persistence",
        "compute_mode", "pcie_max_generation", "pcie_max_width", "cpu_model", "cpu_count", "memory_gib",
        "cudnn_benchmark", "cudnn_tf32", "matmul_tf32", "environment",
    ),
    "D": (
        "sm_mhz", "memory_mhz", "temperature_c", "power_w", "energy_mj", "clock_event_reasons", "performance_state",
        "memory_used_bytes",
    ),
    "V": (
        "driver", "nvml", "cuda_driver", "vbios", "kernel", "repro", "python", "numpy", "nvidia_ml_py", "tabulate",
        "rich", "python_dotenv", "torch", "torch_git", "cuda_runtime", "cudnn", "triton", "ptxas_sha256", "git_commit",
        "git_dirty", "image_id", "engine_version", "runtime", "system_packages_sha256",
    ),
}  # fmt: skip
CLASS = {name: klass for klass, names in FIELDS.items() for name in names}

# Configuration whose values, where they are further apart than this share of the larger, make it another machine: a GPU
# held to nine tenths of its power runs at other clocks.
HARD_BEYOND = {"power_limit_w": 0.10}


def of(name: str, entry: dict[str, Any] | None = None) -> str:
    """A field's class: the table's, else the one stored with the entry, else V."""
    return CLASS.get(name) or str((entry or {}).get("class", "V"))


def stamped(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every entry with its class."""
    return {name: entry | {"class": of(name)} for name, entry in values.items()}
