"""Removes folders that untrusted code could write to. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_REMOVE = ("rm", "-rf", "--")
_OPEN = ("chmod", "-R", "u+rwx", "--")


def remove(path: str | Path) -> None:
    """Remove a folder and everything in it. Raises nothing for what cannot be removed.

    shutil.rmtree is recursive and holds a descriptor for each level; `rm` works at any depth, and follows no link.
    Folders that their owner closed are opened.
    """
    with contextlib.suppress(OSError):
        for words in (_REMOVE, _OPEN, _REMOVE):
            if os.path.isdir(path) and not os.path.islink(path):
                subprocess.run([*words, os.path.abspath(path)], stderr=subprocess.DEVNULL, check=False)
