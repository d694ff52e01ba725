"""Unused user ids for workers, from ranges that no other launcher holds. Standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repro.errors import JudgeError
from repro.system import removal
from repro.system.procfs import of_user

FIRST_UID, LAST_UID = 61000, 65000
# A launcher on the host ends processes in containers by user id too, and a container cannot see the host's users. From
# this id on, ids are for containers only.
_CONTAINED_UID = 63000
_USERS = Path("/tmp/repro-users")  # noqa: S108  the same for every launcher, independent of TMPDIR
_UIDS_A_RANGE = 125  # each launcher locks whole ranges, so that no launcher ends another one's workers


def become(uid: int) -> None:
    """Switch this process to a user for good. Root's capabilities are lost with it."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def clear(scratch: str) -> None:
    """Remove a worker's folder, its files in folders that all users may write, and its System V objects.

    Call as the worker's user. The next worker may get the same user id, so nothing may remain.
    """
    removal.remove(scratch)
    _clear_system_v()
    for folder in ("/dev/shm", "/dev/mqueue", tempfile.gettempdir()):  # noqa: S108
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        if entry.is_dir(follow_symlinks=False):
                            removal.remove(entry.path)
                        else:
                            os.unlink(entry.path)


def _clear_system_v() -> None:
    """Remove the shared memory, semaphores and queues of this process's user: they outlive every process."""
    libc, remove = ctypes.CDLL(None), 0  # IPC_RMID
    for kind, key, call, arguments in (
        ("shm", "shmid", libc.shmctl, (remove, None)),
        ("sem", "semid", libc.semctl, (0, remove)),
        ("msg", "msqid", libc.msgctl, (remove, None)),
    ):
        with contextlib.suppress(OSError):
            head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
            for line in lines:
                facts = dict(zip(head.split(), map(int, line.split()), strict=False))
                if facts["uid"] == os.getuid():
                    call(facts[key], *arguments)


def free(judge_uid: int | None, *, contained: bool = False) -> Iterator[int]:
    """Yield user ids that have no account and no process on this machine, from ranges that this launcher locks.

    contained: inside a container, where ids for containers are used. Raises JudgeError when none is left.
    """
    lowest, end = (_CONTAINED_UID, LAST_UID) if contained else (FIRST_UID, _CONTAINED_UID)
    _USERS.mkdir(mode=0o700, exist_ok=True)
    if _USERS.is_symlink() or _USERS.stat().st_uid != os.geteuid():
        raise JudgeError(f"{_USERS} belongs to another user", "remove it: launchers lock their user ids there")
    held = []
    for first in range(lowest, end, _UIDS_A_RANGE):
        lock = os.open(_USERS / str(first), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        held.append(lock)  # locked until this process ends
        for uid in range(first, first + _UIDS_A_RANGE):
            try:
                pwd.getpwuid(uid)
            except KeyError:
                if uid != judge_uid and not of_user(uid):
                    yield uid
    raise JudgeError("no user id is left for a worker", f"all from {lowest} to {end - 1} are in use")


def may_change() -> bool:
    """Return whether this process may switch to another user that can read our code and write temporary files."""
    if os.geteuid() != 0:
        return False
    temporary = Path(tempfile.gettempdir())  # asked here: in the child it would name a folder that the child may use
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become(LAST_UID)
            needed = [Path(__file__), Path(sys.executable), Path(os.__file__), temporary]
            code = 0 if all(os.access(path, os.R_OK) for path in needed) and os.access(temporary, os.W_OK) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
