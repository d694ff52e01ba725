"""Users for workers: numbers that nobody has, out of ranges that other launchers leave. Standard library alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repro import folders
from repro.errors import JudgeError
from repro.judge.procfs import of_user

FIRST_UID, LAST_UID = 61000, 65000
# A launcher on the host ends processes by user in containers too, and a container's sees none of the host's: from here
# on users are containers' alone.
CONTAINED_UID = 63000
USERS = Path("/tmp/repro-users")  # noqa: S108  the same for every launcher, whatever its TMPDIR
UIDS_A_RANGE = 125  # a launcher takes a range at a time: two of them must not end each other's workers


def become(uid: int) -> None:
    """Gives up this process's user for good; root's capabilities go with it."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def clear(scratch: str) -> None:
    """Removes, as a worker's user, its folder and what it left where all users may write: the next worker may get the
    same number."""
    folders.remove(scratch)
    for folder in ("/dev/shm", tempfile.gettempdir()):  # noqa: S108
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        if entry.is_dir(follow_symlinks=False):
                            folders.remove(entry.path)
                        else:
                            os.unlink(entry.path)


def free(judge_uid: int | None, *, contained: bool = False) -> Iterator[int]:
    """Users that nobody has on this machine and under whom nothing runs, out of ranges that other launchers leave.

    contained: in a container, whose users are none of the host's.
    """
    lowest, end = (CONTAINED_UID, LAST_UID) if contained else (FIRST_UID, CONTAINED_UID)
    USERS.mkdir(mode=0o700, exist_ok=True)
    if USERS.is_symlink() or USERS.stat().st_uid != os.geteuid():
        raise JudgeError(f"{USERS} is another user's", "remove it: launchers note there which users they give out")
    held = []
    for first in range(lowest, end, UIDS_A_RANGE):
        lock = os.open(USERS / str(first), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        held.append(lock)  # until this process ends
        for uid in range(first, first + UIDS_A_RANGE):
            try:
                pwd.getpwuid(uid)
            except KeyError:
                if uid != judge_uid and not of_user(uid):
                    yield uid
    raise JudgeError("no free user is left for a worker", f"all from {lowest} to {end - 1} are in use")


def may_change() -> bool:
    """Whether another user could run our code: the right to become one, and files that it can read."""
    if os.geteuid() != 0:
        return False
    temporary = Path(tempfile.gettempdir())  # not in the child, which would be told a folder that it may use
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
