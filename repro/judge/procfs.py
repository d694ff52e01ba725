"""What /proc says of processes: who lives, below whom, as which user. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def processes() -> dict[int, tuple[int, str]]:
    """pid -> (parent, state) of every process that this one sees. Who has lost its first thread alone is no zombie."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                facts = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                state = "R" if facts[0] == "Z" and int(facts[17]) > 1 else facts[0]
                found[int(entry)] = (int(facts[1]), state)
    return found


def descendants(root: int) -> list[int]:
    """root and every living process below it."""
    parents = {pid: parent for pid, (parent, state) in processes().items() if state != "Z"}
    found = [root] if root in parents else []
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def of_user(uid: int) -> list[int]:
    """Every living process of a user."""
    found = []
    for pid, (_, state) in processes().items():
        with contextlib.suppress(OSError):
            if state != "Z" and _status(pid, "Uid").split()[0] == str(uid):
                found.append(pid)
    return found


def of_user_but(uid: int, strangers: set[int]) -> list[int] | None:
    """Every process of a user, dead ones too, or None where one that is there cannot be read, as on its way through
    exec. strangers: who is somebody else's and is not looked at; those that are found to be are added."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (pid := int(entry)) not in strangers:
            try:
                ours = _status(pid, "Uid").split()[0] == str(uid)
            except (OSError, IndexError):
                if Path(f"/proc/{pid}").exists():
                    return None
                continue
            found += [pid] if ours else []
            strangers |= set() if ours else {pid}
    return found


def forks() -> int:
    """How many processes and threads were ever started here, 0 where the kernel does not say (proc_stat(5)). While it
    stays the same there is nobody new."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/stat").read_text().split("\nprocesses ", 1)[1].split("\n", 1)[0])
    return 0


def at_rest(pid: int) -> bool:
    """Whether every thread of a process is stopped, or it is gone. One in a long system call is not until that ends."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/task/{task}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "TtZX":
                    return False
    return True


def worked_ns(pid: int) -> int:
    """The CPU time of all threads of a process so far, in system calls too; 0 where it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # as clock_getcpuclockid(3) has it
    except OSError:
        return 0


def filters(pid: int) -> int:
    """How many filters its system calls pass."""
    try:
        return int(_status(pid, "Seccomp_filters"))
    except (OSError, ValueError):
        return 0


def _status(pid: int, name: str) -> str:
    """A line of /proc/PID/status, empty where the kernel has none of that name."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return lines.get(name, "").strip()
