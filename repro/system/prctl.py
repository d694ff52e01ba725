"""prctl(2): what a process may set about itself, and the capabilities that bound it."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_CAPBSET_READ, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 23, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION_3, CAP_SYS_ADMIN = 0x20080522, 21

LIBC = ctypes.CDLL(None, use_errno=True)


def last_error() -> OSError:
    """Return the error of the C library's last call."""
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def prctl(option: int, *values: int) -> int:
    """Call prctl(2) with unsigned longs. Raises OSError."""
    done = int(LIBC.prctl(option, *map(ctypes.c_ulong, [*values, 0, 0, 0, 0][:4])))
    if done < 0:
        raise last_error()
    return done
