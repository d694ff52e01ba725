"""Programs that make or inspect machine code: the assembler that Triton uses, and CUDA's programs."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro import config
from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found

TIMEOUT_S = 20
# program -> the pattern before the version in its output
PROGRAMS = {"nvcc": r"release [\d.]+, V", "nvdisasm": r"release [\d.]+, V", "ncu": r"Version ", "gcc": r"\) "}


def _printed(program: str, after: str) -> tuple[str | None, str]:
    """Return (version, why there is none)."""
    found = shutil.which(program)
    if found is None:
        return None, "absent: it is not on the path"
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"failed: {error}"
    match = re.search(rf"{after}(\d[\w.]*)", done.stdout)
    return (match[1], "ok") if match else (None, f"failed: exit code {done.returncode}, and no version in its answer")


def triton_values() -> dict[str, Found]:
    """Return Triton's version, and version and hash of the ptxas that it would call, which the environment may set."""
    try:
        import triton
    except ImportError as error:
        return {"triton": entry(None, "import triton", f"absent: {error}")}
    values = {"triton": entry(triton.__version__, "triton.__version__")}
    bundled = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    path, version, why = bundled, None, "absent: this Triton has no knob for it"
    try:
        tool = triton.knobs.nvidia.ptxas
        path, version, why = Path(tool.path), tool.version, "ok"
    except (AttributeError, RuntimeError, OSError, TypeError) as error:
        why = f"absent: {type(error).__name__}: {error}"
    values["ptxas_version"] = entry(version, "triton.knobs.nvidia.ptxas", why)
    values["ptxas_bundled"] = entry(path == bundled, "triton.knobs.nvidia.ptxas")
    if path.exists():
        values["ptxas_sha256"] = entry(hashlib.sha256(path.read_bytes()).hexdigest()[:16], "triton's ptxas")
    return values


def programs() -> dict[str, Found]:
    """Return the versions of nvcc, nvdisasm, ncu and the C compiler. They are asked side by side."""
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        answers = dict(zip(PROGRAMS, pool.map(_printed, PROGRAMS, PROGRAMS.values()), strict=True))
    found = {program: entry(version, f"{program} --version", why) for program, (version, why) in answers.items()}
    return found | {"compiler_chosen": entry(Path(config.compiler()).name or None, "CC")}
