"""Reads /proc: which processes live, their parents, users and CPU time; ends them. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from repro.errors import JudgeError

# A process whose files cannot be read cannot be seen at rest, so honest solutions would be rejected.
_REMEDY = "Mount /proc without hidepid, or run as one user."


def stat(path: str) -> list[str]:
    """Return the fields of a stat file after the process name, which may hold any bytes. Raises OSError."""
    return _read(path).rsplit(b")", 1)[1].decode().split()


def _read(path: str) -> bytes:
    """Read a file of /proc. Hundreds are read before a timed call; a buffer or a Path costs as much as the kernel."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def processes() -> dict[int, tuple[int, str]]:
    """Return pid -> (parent, state) of every visible process. One that lost only its first thread is no zombie."""
    seen = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                facts = stat(f"/proc/{entry}/stat")
                state = "R" if facts[0] == "Z" and int(facts[17]) > 1 else facts[0]
                seen[int(entry)] = (int(facts[1]), state)
    return seen


def parents() -> dict[int, int]:
    """Return pid -> parent of every living process."""
    return {pid: parent for pid, (parent, state) in processes().items() if state != "Z"}


def descendants(root: int) -> list[int]:
    """Return `root` and every living process below it."""
    known = parents()
    return with_descendants([root] if root in known else [], known)


def with_descendants(pids: list[int], parents: dict[int, int]) -> list[int]:
    """Return some processes and every one below them."""
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def place() -> str:
    """Return an id of where process ids of this process are valid: the machine's boot and its pid namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id").decode().strip()[:8]
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino:x}"


def owner() -> str:
    """Return an id of this process (its place, pid and start time), by which leftovers of dead processes are found."""
    return f"{place()}-{os.getpid()}-{stat('/proc/self/stat')[19]}"


def alive(owner: str) -> bool:
    """Return whether the process that `owner` named still runs here. A zombie does not: its parent may never wait."""
    try:
        where, pid, start = owner.split("-")
        return where == place() and stat(f"/proc/{int(pid)}/stat")[19] == start and not dead(int(pid))
    except (OSError, ValueError):
        return False


def children(pid: int) -> list[int]:
    """Return the children of a process, dead ones included, by one read.

    The list is empty if the kernel does not tell (CONFIG_PROC_CHILDREN).
    """
    pids = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            pids += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return pids


def of_user(uid: int) -> list[int]:
    """Return every living process of a user."""
    pids = []
    for pid, (_, state) in processes().items():
        with contextlib.suppress(OSError, IndexError):
            if state != "Z" and _status(pid, "Uid").split()[0] == str(uid):
                pids.append(pid)
    return pids


def of_user_but(uid: int, strangers: set[tuple[int, int]]) -> list[int] | None:
    """Return every process of a user, dead ones included; None if one cannot be read now, as during exec.

    strangers: (pid, inode) pairs of other users' processes, which are skipped; the inode tells a reused pid apart. It
    is updated: newly seen ones are added, ended ones removed. Raises JudgeError if /proc hides other users' processes.
    """
    pids, there = [], set()
    with os.scandir("/proc") as entries:
        for identity in [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]:
            if identity not in strangers:
                try:
                    if _status(identity[0], "Uid").split()[0] == str(uid):
                        pids.append(identity[0])
                        continue
                except PermissionError as error:  # it will not go away, and no solution caused it
                    raise JudgeError("no process of another user can be read", str(error), _REMEDY) from error
                except (OSError, IndexError):
                    if Path(f"/proc/{identity[0]}").exists():
                        return None
                    continue
            there.add(identity)
    strangers.clear()
    strangers |= there
    return pids


def forks() -> int:
    """Return how many processes and threads this machine ever started, 0 if the kernel does not tell (proc_stat(5)).

    While the number is unchanged, there is no new process.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/stat").read_text().split("\nprocesses ", 1)[1].split("\n", 1)[0])
    return 0


def at_rest(pid: int) -> bool:
    """Return whether every thread of a process is stopped and off the CPU, or it is gone. A system call ends first."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                where = f"/proc/{pid}/task/{task}"
                if stat(f"{where}/stat")[0] not in "TtZX" or _on_cpu(where):
                    return False
    return True


def _on_cpu(where: str) -> bool:
    """Return whether a thread still runs, though its state may be "stopped" already; False if the kernel does not tell.

    Where a host takes the processor away at that moment, the thread's CPU time grows long after. proc(5): `syscall`.
    """
    try:
        return _read(f"{where}/syscall") == b"running\n"  # answered when the thread has left the CPU
    except OSError:
        return False


def moving(pid: int) -> list[str]:
    """Return a line about each thread of a process that is not stopped: its name, state and kernel function."""
    threads = []
    with contextlib.suppress(OSError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError):
                where = f"/proc/{pid}/task/{task}"
                if (state := stat(f"{where}/stat")[0]) not in "TtZX":
                    name, at = (_read(f"{where}/{file}").decode(errors="replace").strip() for file in ("comm", "wchan"))
                    threads.append(f"thread {name!r} is in state {state} ({at})")
    return threads


def dead(pid: int) -> bool:
    """Return whether a process is gone, or is a zombie without a running thread."""
    try:
        facts = stat(f"/proc/{pid}/stat")
        return facts[0] in "ZX" and int(facts[17]) < 2
    except (OSError, IndexError):
        return True


def worked_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process in ns, system calls included; 0 if it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # the clock id, as clock_getcpuclockid(3) computes it
    except OSError:
        return 0


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal, by default SIGKILL, to each process that still lives."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def capabilities(pid: int) -> int:
    """Return the effective capabilities of a process as a bit mask; 0 if unknown."""
    try:
        return int(_status(pid, "CapEff"), 16)
    except (OSError, ValueError):
        return 0


def _status(pid: int, name: str) -> str:
    """Return a field of /proc/PID/status, empty if the kernel has none of that name.

    The first line is skipped: it is the name of the process, which may hold any bytes except a line feed.
    """
    lines = _read(f"/proc/{pid}/status").split(b"\n")[1:]
    return next((value.decode().strip() for key, _, value in (line.partition(b":") for line in lines)
                 if key == name.encode()), "")  # fmt: skip
