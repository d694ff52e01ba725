"""Removes folders that untrusted code could write to. Of other modules it needs the errors alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from repro.errors import EngineError

_REMOVE = ("rm", "-rf", "--")
_OPEN = ("chmod", "-R", "u+rwx", "--")
# Has a child wait for the end of standard input and then remove the folder "$0", and ends at once. A killed process may
# write to the folder for a moment, so that `rm` fails.
_REMOVER = """exec 3<&0
{ read -r line <&3; for n in 1 2 3 4 5; do rm -rf -- "$0" && break; chmod -R u+rwx -- "$0"; sleep 1; done; } &"""
# Longest wait for processes that hold a folder, and for its removal.
_REMOVED_S = 30.0


def remove(path: str | Path) -> None:
    """Remove a folder and everything in it. Raises nothing for what cannot be removed.

    shutil.rmtree is recursive and holds a descriptor for each level; `rm` works at any depth, and follows no link.
    Folders that their owner closed are opened.
    """
    with contextlib.suppress(OSError):
        for words in (_REMOVE, _OPEN, _REMOVE):
            if os.path.isdir(path) and not os.path.islink(path):
                subprocess.run([*words, os.path.abspath(path)], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def removed(path: Path) -> Iterator[int]:
    """Have a folder that the block makes removed after it, also if this process is killed.

    Yields a descriptor for child processes: the folder is removed after the last process that holds it has ended. The
    process that removes it is no child of this one, because Ray kills the children of a process that it ends.
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", _REMOVER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as remover:
        assert remover.stdin is not None
        if remover.wait():
            raise EngineError("no process that removes temporary files could be started")
        try:
            yield remover.stdin.fileno()
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                remover.communicate(timeout=_REMOVED_S)
            remove(path)
