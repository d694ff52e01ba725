"""Processes that an agent starts, and orphans that it leaves.

The session adopts every orphan of the agent and must reap them, or process ids run out. Children that other code here
waits for are left to that code.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from typing import Any

from repro.system.prctl import PR_SET_CHILD_SUBREAPER, prctl
from repro.system.procfs import descendants, kill, processes

KILL_ROUNDS = 50
_lock = threading.Lock()
_awaited: set[int] = set()


def adopt() -> None:
    """Make this process the parent of its descendants' orphans."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that the caller waits for, in a session of its own. Raises OSError."""
    with _lock:  # so that a process that ends at once is not reaped before it is registered
        process = subprocess.Popen(command, start_new_session=True, **options)
        _awaited.add(process.pid)
    return process


def bury(known: set[int]) -> None:
    """Reap dead children that no code waits for. known: children of other code."""
    with _lock:
        for pid, (parent, state) in processes().items():
            if parent == os.getpid() and state == "Z" and pid not in known and pid not in _awaited:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def end_all(known: set[int]) -> None:
    """Kill every descendant of this process except `known`, until none is left."""
    for _ in range(KILL_ROUNDS):
        left = [pid for pid in descendants(os.getpid()) if pid not in known and pid != os.getpid()]
        kill(left)
        bury(known)
        if not left:
            return
        time.sleep(0.02)
