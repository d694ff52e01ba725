"""Versions of Python and its packages, the flags of torch, and the environment that decides how fast they are."""

from __future__ import annotations

import importlib.metadata
import platform

from repro import __version__, config
from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found
from repro.system.importing import version

PACKAGES = ("torch", "triton", "numpy", "nvidia-ml-py", "tabulate", "rich", "python-dotenv")
# Properties that CUDA's runtime reports; NVML reports no cache sizes.
PROPERTIES = (
    "multi_processor_count", "L2_cache_size", "shared_memory_per_multiprocessor", "regs_per_multiprocessor",
)  # fmt: skip


def _libraries() -> dict[str, str]:
    """Return the versions of NVIDIA's packages: cuBLAS and cuDNN hold the kernels of baselines."""
    named = {}
    for found in importlib.metadata.distributions():
        # Only the header is read: parsing all descriptions takes 0.2 s.
        head = (found.read_text("METADATA") or "").partition("\n\n")[0]
        told = dict(line.split(": ", 1) for line in head.splitlines() if line.startswith(("Name: ", "Version: ")))
        if told.keys() == {"Name", "Version"}:
            named[told["Name"].lower()] = told["Version"]
    return {n: v for n, v in sorted(named.items()) if n.startswith("nvidia-") and n != "nvidia-ml-py"}


def _torch() -> dict[str, Found]:
    try:
        import torch
    except ImportError as error:
        return {"torch": entry(None, "import torch", f"absent: {error}")}
    values = {
        "torch": entry(torch.__version__, "torch.__version__"),
        "torch_git": entry(torch.version.git_version, "torch.version"),
        "torch_cxx11_abi": entry(torch.compiled_with_cxx11_abi(), "torch.compiled_with_cxx11_abi"),
        "cuda_runtime": entry(torch.version.cuda, "torch.version.cuda"),
        "cudnn": entry(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
                       "torch.backends.cudnn"),
        "cudnn_benchmark": entry(torch.backends.cudnn.benchmark, "torch.backends.cudnn"),
        "cudnn_deterministic": entry(torch.backends.cudnn.deterministic, "torch.backends.cudnn"),
        "cudnn_tf32": entry(torch.backends.cudnn.allow_tf32, "torch.backends.cudnn"),
        "matmul_tf32": entry(torch.backends.cuda.matmul.allow_tf32, "torch.backends.cuda.matmul"),
        "matmul_precision": entry(torch.get_float32_matmul_precision(), "torch.get_float32_matmul_precision"),
        "deterministic": entry(torch.are_deterministic_algorithms_enabled(), "torch.are_deterministic_algorithms"),
    }  # fmt: skip
    if torch.cuda.is_available():
        values["allocator"] = entry(torch.cuda.get_allocator_backend(), "torch.cuda.get_allocator_backend")
        properties = torch.cuda.get_device_properties(0)
        for name in PROPERTIES:
            values[name.lower()] = entry(getattr(properties, name, None), "cudaGetDeviceProperties")
    return values


def _caches() -> Found:
    """Return whether the folders that this process compiles into already hold compiled kernels."""
    folders = config.compile_caches()
    if not folders:
        return entry(None, "TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR", "absent: neither is set")
    warm = any(folder.is_dir() and any(folder.iterdir()) for folder in folders)
    return entry("warm" if warm else "cold", "TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR")


def values() -> dict[str, Found]:
    """Return versions (V), flags and allow-listed environment variables (C); of other variables only the names."""
    found = {"repro": entry(__version__, "repro.__version__")}
    found["python"] = entry(platform.python_version(), "platform")
    for name in PACKAGES:
        if name not in ("torch", "triton"):
            found[name.replace("-", "_")] = entry(version(name), "package metadata")
    found["nvidia_packages"] = entry(_libraries() or None, "package metadata")
    found |= _torch()
    found["environment"] = entry(config.fingerprint_env(), "allow-listed variables")
    found["environment_withheld"] = entry(config.withheld(), "names of variables that workers do not inherit")
    found["visible_devices"] = entry(config.visible_devices(), "CUDA_VISIBLE_DEVICES")
    return found | {"compile_caches": _caches()}


def off_pin() -> dict[str, str]:
    """Return the differences from the pinned stack: name -> version found."""
    found = {"torch": (version("torch") or "absent").split("+")[0], "triton": version("triton") or "absent"}
    try:
        import torch

        found["torch"] = torch.__version__.split("+")[0]
        found["cuda"] = torch.version.cuda or "none"
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["cuda"] = "absent"
    return {name: version for name, version in found.items() if version != config.PINS[name]}
