"""The processes that an agent starts and those that it leaves behind.

The session adopts every orphan of the agent, so it must bury them, or process ids run out; those that somebody here
waits for are left to whoever waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import Any

from repro.judge.confine import PR_SET_CHILD_SUBREAPER, prctl
from repro.judge.procfs import descendants, processes

KILL_ROUNDS = 50
_lock = threading.Lock()
_awaited: set[int] = set()


def adopt() -> None:
    """Makes this process the parent of whatever its descendants abandon."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process that its starter waits for, in a session of its own. Raises OSError."""
    with _lock:  # so that one that ends at once is not buried before it is known
        process = subprocess.Popen(command, start_new_session=True, **options)
        _awaited.add(process.pid)
    return process


def bury(known: set[int]) -> None:
    """Reaps dead children that nobody waits for; `known` are others' children."""
    with _lock:
        for pid, (parent, state) in processes().items():
            if parent == os.getpid() and state == "Z" and pid not in known and pid not in _awaited:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def kill(pids: list[int]) -> None:
    """SIGKILL to each that still lives."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_all(known: set[int]) -> None:
    """Kills every descendant of this process but `known`, until none is left."""
    for _ in range(KILL_ROUNDS):
        left = [pid for pid in descendants(os.getpid()) if pid not in known and pid != os.getpid()]
        kill(left)
        bury(known)
        if not left:
            return
        time.sleep(0.02)
