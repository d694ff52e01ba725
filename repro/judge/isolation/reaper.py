"""Orphans: processes that workers started, that lost their parent, and that the launcher adopted.

Standard library alone. known: children of this process that are no orphans.
"""

from __future__ import annotations

import contextlib
import os
import signal

from repro.system.procfs import children, parents, processes, with_descendants


def orphans(known: set[int]) -> list[int]:
    """Return all living orphans and their descendants. One look at /proc, since thousands may be dead."""
    living = parents()
    own = [child for child, parent in living.items() if parent == os.getpid() and child not in known]
    return with_descendants(own, living)


def kill(known: set[int]) -> bool:
    """Kill each orphan as it is seen, the youngest first, and reap dead ones. Return whether there were any.

    A process that forks and ends in a loop has a new process id before `orphans` has finished.
    """
    seen = False
    for child in reversed(children(os.getpid())):
        if child not in known:
            seen = True
            with contextlib.suppress(ChildProcessError, ProcessLookupError, PermissionError):
                if os.waitpid(child, os.WNOHANG)[0] == 0:
                    os.kill(child, signal.SIGKILL)
    return seen


def reap(known: set[int]) -> None:
    """Reap the dead orphans."""
    for pid, (parent, state) in processes().items():
        if parent == os.getpid() and state == "Z" and pid not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
