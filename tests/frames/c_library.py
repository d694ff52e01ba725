"""A C library made at run time."""

import ctypes
import subprocess
import tempfile
from pathlib import Path


def build(source):
    """Compiles C into a shared library and loads it."""
    folder = Path(tempfile.mkdtemp())
    (folder / "hook.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "hook.so"), str(folder / "hook.c"), "-ldl"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "hook.so"))
