"""Versions of Python, its packages and the toolchain, the flags of torch, and the environment that decides speed."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from repro import __version__, config
from repro.fingerprint.query import Absent, Class, Query
from repro.system.importing import version

_TIMEOUT_S = 20


def _libraries() -> dict[str, str] | None:
    """Return the versions of NVIDIA's packages: cuBLAS and cuDNN hold the kernels of baselines."""
    # By the names of their folders: reading the metadata of every package takes 0.2 s.
    folders = sorted(folder.stem for path in sys.path for folder in Path(path).glob("nvidia_*.dist-info"))
    versions = dict(name.replace("_", "-").rsplit("-", 1) for name in folders)
    return {name: version for name, version in versions.items() if name != "nvidia-ml-py"} or None


def _torch(name: str, klass: Class, how: Callable[[Any], Any], source: str) -> Query:
    def ask() -> Any:
        import torch

        return how(torch)

    return Query(name, klass, ask, source)


def _property(name: str, attribute: str) -> Query:
    """Return a query of CUDA's runtime; NVML reports no cache sizes."""

    def how(torch: Any) -> Any:
        if not torch.cuda.is_available():
            raise Absent("absent: torch sees no GPU")
        return getattr(torch.cuda.get_device_properties(0), attribute, None)

    return _torch(name, "H", how, "cudaGetDeviceProperties")


def _ptxas() -> Any:
    """Return the version of the ptxas that Triton would call, which the environment may set."""
    import triton

    try:
        return triton.knobs.nvidia.ptxas.version
    except AttributeError as error:
        raise Absent(f"absent: this Triton has no knob for it: {error}") from error


def _triton() -> str:
    import triton

    return str(triton.__version__)


def _printed(program: str, after: str) -> str:
    """Return the version that a program prints after this pattern."""
    path = shutil.which(program)
    if path is None:
        raise Absent("absent: it is not on the path")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if match := re.search(rf"{after}(\d[\w.]*)", done.stdout):
        return match[1]
    raise Absent(f"failed: exit code {done.returncode}, and no version in its answer")


FIELDS = (
    Query("repro", "V", lambda: __version__, "repro.__version__"),
    Query("python", "V", platform.python_version, "platform"),
    Query("numpy", "V", lambda: version("numpy"), "package metadata"),
    Query("nvidia_packages", "V", _libraries, "package metadata"),
    _torch("torch", "V", lambda torch: torch.__version__, "torch.__version__"),
    _torch("cuda_runtime", "V", lambda torch: torch.version.cuda, "torch.version.cuda"),
    _torch("cudnn", "V", lambda t: t.backends.cudnn.version() if t.backends.cudnn.is_available() else None,
           "torch.backends.cudnn"),
    _torch("cudnn_benchmark", "C", lambda torch: torch.backends.cudnn.benchmark, "torch.backends.cudnn"),
    _torch("cudnn_tf32", "C", lambda torch: torch.backends.cudnn.allow_tf32, "torch.backends.cudnn"),
    _torch("matmul_tf32", "C", lambda torch: torch.backends.cuda.matmul.allow_tf32, "torch.backends.cuda.matmul"),
    _torch("allocator", "C", lambda torch: torch.cuda.get_allocator_backend(), "torch.cuda.get_allocator_backend"),
    _property("multi_processor_count", "multi_processor_count"),
    _property("l2_cache_size", "L2_cache_size"),
    _property("shared_memory_per_multiprocessor", "shared_memory_per_multiprocessor"),
    _property("regs_per_multiprocessor", "regs_per_multiprocessor"),
    Query("triton", "V", _triton, "triton.__version__"),
    Query("ptxas_version", "V", _ptxas, "triton.knobs.nvidia.ptxas"),
    Query("environment", "C", config.fingerprint_env, "allow-listed variables"),
    Query("visible_devices", "C", config.visible_devices, "CUDA_VISIBLE_DEVICES"),
)  # fmt: skip
PROGRAMS = (
    Query("nvcc", "V", partial(_printed, "nvcc", r"release [\d.]+, V"), "nvcc --version"),
    Query("ncu", "V", partial(_printed, "ncu", "Version "), "ncu --version"),
    Query("gcc", "V", partial(_printed, "gcc", r"\) "), "gcc --version"),
)


def off_pin() -> dict[str, str]:
    """Return the differences from the pinned stack: name -> version found."""
    found = {"torch": (version("torch") or "absent").split("+")[0], "triton": version("triton") or "absent"}
    try:
        import torch

        found["torch"] = torch.__version__.split("+")[0]
        found["cuda"] = torch.version.cuda or "none"
        found["triton"] = _triton()
    except ImportError:
        found["cuda"] = "absent"
    return {name: version for name, version in found.items() if version != config.PINS[name]}
