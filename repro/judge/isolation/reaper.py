"""Orphans: processes that workers started, that lost their parent, and that the launcher adopted.

Standard library alone. known: children of this process that are no orphans. alone: whether this process does nothing
but start workers. If it is also the judge, it may have other children; these pass fewer seccomp filters than workers
do.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from repro.system.procfs import children, filters, processes


def _left(known: set[int], *, alone: bool) -> Callable[[int], bool]:
    """Return a predicate: whether a child of this process was left by a worker."""
    ours = filters(os.getpid())
    return lambda child: child not in known and (alone or filters(child) > ours)


def found(known: set[int], *, alone: bool) -> list[int]:
    """Return all living orphans and their descendants. One look at /proc, since thousands may be dead."""
    left, parents = _left(known, alone=alone), {p: above for p, (above, state) in processes().items() if state != "Z"}
    living = [child for child, parent in parents.items() if parent == os.getpid() and left(child)]
    for each in living:
        living += [child for child, parent in parents.items() if parent == each]
    return living


def kill(known: set[int], *, alone: bool) -> bool:
    """Kill each orphan as it is seen, the youngest first, and reap dead ones. Return whether there were any.

    A process that forks and ends in a loop has a new process id before `found` has finished.
    """
    left, seen = _left(known, alone=alone), False
    for child in filter(left, reversed(children(os.getpid()))):
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
