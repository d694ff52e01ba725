"""Compiles the judge's CUDA kernels to PTX, which is shipped beside them: `python tests/compile_ptx.py`, or `make ptx`.

The compiler is NVRTC of the pinned CUDA version, which comes with torch. It needs no GPU.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import torch  # noqa: F401  (its packages hold libnvrtc, which it loads)

from repro import config

FOLDER = config.PACKAGE / "judge" / "gpu"
KERNELS = ("digest", "distance", "gate")
LIBRARY = f"libnvrtc.so.{config.PINS['cuda'].split('.')[0]}"
# The oldest architecture that the compiler knows. The driver compiles for the GPU that it finds.
OPTIONS = (b"--gpu-architecture=compute_70",)
# NVRTC writes its own version, which older drivers refuse. The kernels need nothing newer than this, of CUDA 11.0.
PTX_VERSION = "7.0"


def compile_ptx(source: Path) -> str:
    """Return the PTX of a CUDA file. Raises RuntimeError with the compiler's log."""
    nvrtc = ctypes.CDLL(LIBRARY)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
    failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    kind = "ProgramLog" if failed else "PTX"
    getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{kind}")(program, text)
    if failed:
        raise RuntimeError(text.value.decode())
    code = text.value.decode()
    body = re.sub(r"^\.version .*$", f".version {PTX_VERSION}", code[code.index(".version") :], flags=re.MULTILINE)
    lines = [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("//")]
    return "\n".join([f"// Made from {source.name} by `make ptx`.", *lines, ""])


def main() -> None:
    """Write the PTX of every kernel beside its source."""
    for name in KERNELS:
        (FOLDER / f"{name}.ptx").write_text(compile_ptx(FOLDER / f"{name}.cu"))


if __name__ == "__main__":
    main()
