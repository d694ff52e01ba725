"""Removes folders that untrusted code could write to. Standard library alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Opens a folder only as a starting point, which works whatever its mode.
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: str | Path) -> None:
    """Remove a folder and everything in it. Raises nothing for what cannot be removed.

    It works at any depth. shutil.rmtree is recursive, holds a descriptor for each level, and the paths of deep entries
    are too long. Folders that their owner closed are opened; links are not followed.
    """
    folder = Path(os.path.abspath(path))
    above: list[tuple[tuple[int, int], list[str]]] = []  # for each parent: its identity and the names left in it
    with contextlib.suppress(OSError):
        here, left = os.open(folder.parent, _WAY & ~os.O_NOFOLLOW), [folder.name]
        try:
            while left or above:
                if left:
                    inner = _enter(left[-1], here)
                    if inner is None:
                        left.pop()
                        continue
                    above.append((_identity(here), left))
                    os.close(here)
                    here, left = inner, _empty(inner)
                    continue
                outer = os.open("..", _WAY, dir_fd=here)
                os.close(here)
                here, (known, left) = outer, above.pop()
                if _identity(here) != known:
                    return  # the folder was moved meanwhile, so this is not the one to remove
                with contextlib.suppress(OSError):
                    os.rmdir(left.pop(), dir_fd=here)
        finally:
            os.close(here)


def _enter(name: str, parent: int) -> int | None:
    """Open a folder with all rights that its owner can have. Return None if it is none or closed to this user."""
    try:
        folder = os.open(name, _WAY, dir_fd=parent)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    if os.access(".", os.X_OK, dir_fd=folder):
        return folder
    os.close(folder)
    return None


def _empty(folder: int) -> list[str]:
    """Remove everything except folders; return the names of the folders."""
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    folders = []
    try:
        for name in os.listdir(readable):
            try:
                os.unlink(name, dir_fd=readable)
            except IsADirectoryError:
                folders.append(name)
            except OSError:
                continue
    finally:
        os.close(readable)
    return folders


def _identity(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino
