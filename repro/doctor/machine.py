"""Checks of Python, the pinned packages, the compiler and the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from repro import config
from repro.doctor.finding import Finding, Setting, fail, ok, warn
from repro.judge.isolation import uids
from repro.system.importing import version

_PYTHONS = ((3, 11), (3, 12))
_GIB = 1 << 30
# A bundle of a whole run takes some MB.
_NEEDED_BYTES, _GOOD_BYTES = 1 * _GIB, 5 * _GIB
_COMPILE_TIMEOUT_S = 60


def python(setting: Setting) -> Finding:
    """Check for a Python that the pinned packages support."""
    seen = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] in _PYTHONS:
        return ok(seen)
    return fail(seen, "Use Python 3.11 or 3.12, or --engine docker.")


def pins(setting: Setting) -> Finding:
    """Check that torch and Triton are the pinned ones, if this Python's processes use them."""
    found = {name: version(name) for name in ("torch", "triton")}
    if found["torch"] is None:
        return fail("torch is not installed here", "Run `make setup ENGINE=local` or `pip install .` in a checkout.")
    off = [f"{n} {v}, pinned {config.PINS[n]}" for n, v in found.items() if (v or "").split("+")[0] != config.PINS[n]]
    if off:
        return warn(
            "; ".join(off), "You may go on: every table says off-pin. For the pinned stack: make setup or make image."
        )
    return ok(", ".join(f"{name} {version}" for name, version in found.items()))


def separation(setting: Setting) -> Finding:
    """Check whether root can give each solution a user of its own; an ordinary user never can."""
    if os.geteuid() != 0:
        return ok("process: solutions run as this user, in processes of their own")
    if uids.may_change():
        return ok("user: each solution runs as a user of its own")
    seen = "process: other users may not read this Python, this checkout or the folder of temporary files"
    return warn(seen, "Solutions run as root; each result has its `separation`. Install where all users may read.")


def compiler(setting: Setting) -> Finding:
    """Check for a C compiler and Python.h: Triton compiles each kernel's launcher at its first run."""
    needed = fail if setting.handles else warn
    program = config.compiler() or next(filter(None, map(shutil.which, ("gcc", "clang", "cc"))), "")
    if not program:
        return needed("no C compiler", "Install gcc, or name a compiler in CC. Triton's interpreter does not need one.")
    if why := _compiles(program):
        return needed(f"{program} {why}", "Install gcc, libc6-dev and python3-dev, or name a compiler in CC.")
    return ok(program)


def _compiles(program: str) -> str:
    """Return why a compiler makes no shared object, or the empty string."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "empty.c", Path(folder) / "empty.so"
        source.write_text("#include <Python.h>\n")
        try:
            done = subprocess.run(
                [program, "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", "-o", made, source],
                capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"does not run: {error}"
        failed = done.returncode or not made.exists()
        return f"cannot make a shared object: {done.stderr.strip()[:200]}" if failed else ""


def _existing(path: Path) -> Path:
    """Return the path itself, or the nearest existing folder above it."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def results(setting: Setting) -> Finding:
    """Check that bundles can be written to the results folder."""
    where = _existing(setting.results)
    if where.is_dir() and os.access(where, os.W_OK | os.X_OK):
        return ok(str(setting.results))
    return fail(f"{where} is not writable", "Choose another --results, RESULTS or $REPRO_RESULTS.")


def disk(setting: Setting) -> Finding:
    """Check for space for bundles and compiled kernels."""
    places = {"results": _existing(setting.results)}
    if setting.engine == "local":
        places["temporary files"] = Path(tempfile.gettempdir())
    free = {name: shutil.disk_usage(path).free for name, path in places.items()}
    seen = ", ".join(f"{size / _GIB:.0f} GiB free for {name}" for name, size in free.items())
    if min(free.values()) < _NEEDED_BYTES:
        return fail(seen, "Free disk space, or choose other folders with --results and TMPDIR.")
    remedy = "Jobs put compiled kernels there while they run, and a full disk ends them."
    return ok(seen) if min(free.values()) >= _GOOD_BYTES else warn(seen, remedy)
