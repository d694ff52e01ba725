"""What /proc says of processes: who lives, below whom, as which user. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from repro.errors import JudgeError

# Who cannot be read cannot be seen to stand still, and honest solutions were rejected for it.
REMEDY = "Mount /proc without hidepid, or run as one user."


def stat(path: str) -> list[str]:
    """What such a file says after the name, which may hold any bytes. Raises OSError where there is none."""
    return _read(path).rsplit(b")", 1)[1].decode().split()


def _read(path: str) -> bytes:
    """A file of /proc: hundreds are read before a timed call, and a buffer or a Path takes as long as the kernel."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def processes() -> dict[int, tuple[int, str]]:
    """pid -> (parent, state) of every process that this one sees. Who has lost its first thread alone is no zombie."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                facts = stat(f"/proc/{entry}/stat")
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


def children(pid: int) -> list[int]:
    """The children of a process, dead ones too, by one read; nobody where the kernel does not say
    (CONFIG_PROC_CHILDREN)."""
    found = list[int]()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def of_user(uid: int) -> list[int]:
    """Every living process of a user."""
    found = []
    for pid, (_, state) in processes().items():
        with contextlib.suppress(OSError, IndexError):
            if state != "Z" and _status(pid, "Uid").split()[0] == str(uid):
                found.append(pid)
    return found


def of_user_but(uid: int, strangers: set[tuple[int, int]]) -> list[int] | None:
    """Every process of a user, dead ones too, or None where one that is there cannot be read, as on its way through
    exec. strangers: who is somebody else's and is not looked at, by number and inode, for a number alone is given
    again; those that are found to be are added, and who is gone is left out. Raises JudgeError where /proc hides them.
    """
    found, there = [], set[tuple[int, int]]()
    with os.scandir("/proc") as entries:
        for who in [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]:
            if who not in strangers:
                try:
                    if _status(who[0], "Uid").split()[0] == str(uid):
                        found.append(who[0])
                        continue
                except PermissionError as error:  # it will not pass, and is nobody's fault who is judged
                    raise JudgeError("no process of another user can be read", str(error), REMEDY) from error
                except (OSError, IndexError):
                    if Path(f"/proc/{who[0]}").exists():
                        return None
                    continue
            there.add(who)
    strangers.clear()
    strangers |= there
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
                if stat(f"/proc/{pid}/task/{task}/stat")[0] not in "TtZX":
                    return False
    return True


def dead(pid: int) -> bool:
    """Whether a process is gone, or a zombie without a thread that runs on."""
    try:
        facts = stat(f"/proc/{pid}/stat")
        return facts[0] in "ZX" and int(facts[17]) < 2
    except (OSError, IndexError):
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
    """A line of /proc/PID/status, empty where the kernel has none of that name. The first is the name of the process,
    which may hold any bytes but a line feed."""
    lines = _read(f"/proc/{pid}/status").split(b"\n")[1:]
    return next((value.decode().strip() for key, _, value in (line.partition(b":") for line in lines)
                 if key == name.encode()), "")  # fmt: skip
