"""Versions, flags and container facts."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from repro import __version__, settings
from repro.fingerprint import git
from repro.fingerprint.hardware import entry

PACKAGES = ("torch", "triton", "numpy", "nvidia-ml-py", "tabulate", "rich", "python-dotenv")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"torch": entry(None, "import torch", f"absent: {error}")}
    values = {
        "torch": entry(torch.__version__, "torch.__version__"),
        "torch_git": entry(torch.version.git_version, "torch.version"),
        "cuda_runtime": entry(torch.version.cuda, "torch.version.cuda"),
        "cudnn": entry(torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
                       "torch.backends.cudnn"),
        "cudnn_benchmark": entry(torch.backends.cudnn.benchmark, "torch.backends.cudnn"),
        "cudnn_tf32": entry(torch.backends.cudnn.allow_tf32, "torch.backends.cudnn"),
        "matmul_tf32": entry(torch.backends.cuda.matmul.allow_tf32, "torch.backends.cuda.matmul"),
    }  # fmt: skip
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        for name in ("multi_processor_count", "L2_cache_size", "shared_memory_per_multiprocessor"):
            values[name.lower()] = entry(getattr(properties, name, None), "cudaGetDeviceProperties")
    return values


def _ptxas() -> dict[str, Any]:
    try:
        import triton
    except ImportError as error:
        return {"triton": entry(None, "import triton", f"absent: {error}")}
    values = {"triton": entry(triton.__version__, "triton.__version__")}
    binary = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    if binary.exists():
        values["ptxas_sha256"] = entry(hashlib.sha256(binary.read_bytes()).hexdigest()[:16], "triton's ptxas")
    return values


def values() -> dict[str, Any]:
    """Versions (V), flags and allow-listed environment variables (C), container facts (V)."""
    found = {"repro": entry(__version__, "repro.__version__")}
    found["python"] = entry(platform.python_version(), "platform")
    for name in PACKAGES:
        version = _version(name)
        if name not in ("torch", "triton"):
            found[name.replace("-", "_")] = entry(version, "package metadata", "ok" if version else "absent")
    found |= _torch() | _ptxas() | git.values()
    found["environment"] = entry(settings.fingerprint_env(), "allow-listed variables")
    facts = settings.container_facts()
    for name in ("image_id", "engine_version", "runtime"):
        found[name] = entry(facts.get(name), "the launcher", "ok" if name in facts else "absent: not in a container")
    packages = Path("/usr/share/repro/packages.txt")
    if packages.exists():
        digest = hashlib.sha256(packages.read_bytes()).hexdigest()[:16]
        found["system_packages_sha256"] = entry(digest, str(packages))
    return found


def off_pin() -> dict[str, str]:
    """What differs from the pinned stack: name -> version found."""
    found = {"torch": (_version("torch") or "absent").split("+")[0], "triton": _version("triton") or "absent"}
    try:
        import torch

        found["torch"] = torch.__version__.split("+")[0]
        found["cuda"] = torch.version.cuda or "none"
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["cuda"] = "absent"
    return {name: version for name, version in found.items() if version != settings.PINS[name]}
