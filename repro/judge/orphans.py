"""What workers started and left: processes that lost their parent, and that the launcher adopted.

Standard library alone. known: children of this process that are none of them. alone: whether this process starts
workers and does nothing else; beside the judge in one process it may have children of its own, whose system calls are
not filtered as those of all workers are.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from repro.judge.procfs import children, filters, processes


def _left(known: set[int], *, alone: bool) -> Callable[[int], bool]:
    """What tells whether a child of this process is one that a worker left."""
    ours = filters(os.getpid())
    return lambda child: child not in known and (alone or filters(child) > ours)


def found(known: set[int], *, alone: bool) -> list[int]:
    """All that lives of them, with what they started. By one look at /proc: there may be thousands of dead ones."""
    left, parents = _left(known, alone=alone), {p: above for p, (above, state) in processes().items() if state != "Z"}
    living = [child for child, parent in parents.items() if parent == os.getpid() and left(child)]
    for each in living:
        living += [child for child, parent in parents.items() if parent == each]
    return living


def kill(known: set[int], *, alone: bool) -> bool:
    """Kills each as it is seen, the youngest first, and takes leave of the dead: who forks and ends over and over is
    another process before `found` is through with looking. Whether there were any, dead or alive."""
    left, seen = _left(known, alone=alone), False
    for child in filter(left, reversed(children(os.getpid()))):
        seen = True
        with contextlib.suppress(ChildProcessError, ProcessLookupError, PermissionError):
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, signal.SIGKILL)
    return seen


def reap(known: set[int]) -> None:
    """Takes leave of those that are dead."""
    for pid, (parent, state) in processes().items():
        if parent == os.getpid() and state == "Z" and pid not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
