"""Confinement of a worker with what an ordinary user may give up: called before the worker reads a solution.

It needs no image, no root and no helper program, so it works in a container and under ENGINE=local alike. Landlock
bounds files, TCP and signals. A seccomp filter bounds system calls. Capabilities, core files, large files and the ways
to regain privileges are removed. A measure that the kernel refuses is never fatal: the judge writes it beside the
result. All measures are inherited by later threads and processes, and none can be undone.

Landlock and seccomp do not control changes of mode, owner or times of a file that the process owns. Landlock binds the
calling thread and what it starts. A worker therefore calls `confine` while it has one thread, as every fork has.
Sources: landlock(7), seccomp(2), prctl(2), and the kernel's userspace-api/landlock and userspace-api/seccomp_filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from repro import config
from repro.system.prctl import (
    CAP_SYS_ADMIN,
    CAPABILITY_VERSION_3,
    LIBC,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_CAPBSET_READ,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    PR_SET_SECCOMP,
    last_error,
    prctl,
)
from repro.system.procfs import capabilities

_MAX_FILE_BYTES = 4 << 30


def _syscall(number: int, *values: int | ctypes._Pointer[ctypes.Structure] | None) -> int:
    """Call syscall(2), with numbers as longs, which a variadic function needs. Raises OSError."""
    given = [ctypes.c_long(v) if isinstance(v, int) else v for v in values]
    done = int(LIBC.syscall(ctypes.c_long(number), *given))
    if done < 0:
        raise last_error()
    return done


# -- files, TCP and signals: Landlock ----------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on x86_64 and aarch64
_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OWN = (1 << 15) - 1 & ~(_MAKE_CHAR | _MAKE_BLOCK)  # everything up to _TRUNCATE, except device nodes
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # rights that a rule for a file may contain
_NET_TCP = 1 << 0 | 1 << 1  # bind, connect
_SCOPE_SIGNAL = 1 << 1  # sockets are bounded by the seccomp filter
_OLDEST_ABI = 2  # version 1 forbids renaming between folders, which Triton's cache does

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/sys")
_OWN_THREADS = Path("/proc/self/task")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dxg")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _abi() -> int:
    """Return the version of Landlock that this kernel supports. Raises OSError if it supports none."""
    return _syscall(_CREATE_RULESET, None, 0, _RULESET_VERSION)


def _ruleset(abi: int) -> _Ruleset:
    """Return all rights that this version handles; the kernel refuses unknown ones."""
    newest = {1: 12, 2: 13, 3: 14, 4: 14}.get(abi, 15)
    return _Ruleset((2 << newest) - 1, _NET_TCP if abi >= 4 else 0, _SCOPE_SIGNAL if abi >= 6 else 0)


def _hidden() -> list[Path]:
    """Return folders of which only named parts may be read: the user's home, and the one of solutions and results."""
    folders = [config.ROOT]
    try:
        folders.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    except KeyError:
        pass
    return folders


def _around(path: Path, hidden: list[Path]) -> Iterator[Path]:
    """Yield `path`; if it contains a hidden folder, everything around that. Landlock rules have no exceptions."""
    if path in hidden:
        return
    if not any(folder.is_relative_to(path) for folder in hidden):
        yield path
        return
    try:
        children = list(path.iterdir())
    except OSError:
        return
    for child in children:
        if not child.is_symlink():
            yield from _around(child, hidden)


def _rules(scratch: Path, readable: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Yield (path, rights at and below it)."""
    hidden = _hidden()
    for name in (*_SYSTEM, sys.prefix, sys.base_prefix, *filter(None, sys.path)):
        path = Path(name).resolve()
        yield from ((part, _READ) for part in _around(path, hidden))
        if name in sys.path and any(folder.is_relative_to(path) for folder in hidden):
            yield path, _READ_DIR  # the import system lists it
    yield config.PACKAGE, _READ
    yield from ((path, _READ) for path in readable)
    yield Path("/proc"), _READ_FILE | _READ_DIR
    # The CUDA driver writes to /proc/self/task/*/comm and fails without that right, in child processes too. Root gets
    # only its own threads in /proc, because it owns /proc/sys even without capabilities.
    yield _OWN_THREADS if os.geteuid() == 0 else Path("/proc"), _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
    yield Path("/dev"), _READ_DIR
    for pattern in _DEVICES:
        yield from ((node, _DEVICE) for node in Path("/dev").glob(pattern))
    yield Path("/dev") / "shm", _OWN
    yield scratch, _OWN


def _landlock(scratch: Path, readable: Iterable[Path]) -> str:
    """Apply the rules. Return what they cover. Raises OSError if the kernel refuses."""
    abi = _abi()
    if abi < _OLDEST_ABI:
        return f"not applied: ABI {abi} is too old"
    ruleset = _ruleset(abi)
    fd = _syscall(_CREATE_RULESET, ctypes.pointer(ruleset), ctypes.sizeof(ruleset), 0)
    left_out = []
    try:
        for path, access in _rules(scratch, readable):
            try:
                at = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    left_out.append(f"{path} ({error.strerror})")
                continue
            try:
                allowed = access & ruleset.files & (-1 if path.is_dir() else _ON_FILES)
                rule = _PathBeneath(allowed, at)
                _syscall(_ADD_RULE, fd, _RULE_PATH_BENEATH, ctypes.pointer(rule), 0)
            except OSError as error:
                left_out.append(f"{path} ({error.strerror})")
            finally:
                os.close(at)
        os.open(_OWN_THREADS, os.O_PATH | os.O_CLOEXEC)  # kept open: else /proc may make it anew without its rule
        _syscall(_RESTRICT_SELF, fd, 0)
    finally:
        os.close(fd)
    covers = "files" + (", TCP" if ruleset.net else "") + (", signals" if ruleset.scoped else "")
    threads = len(os.listdir("/proc/self/task")) - 1
    late = f"; {threads} threads that ran before are not bound" if threads else ""
    return f"applied: ABI {abi}: {covers}{late}" + (f"; not readable: {', '.join(left_out)}" if left_out else "")


# -- system calls: seccomp ---------------------------------------------------------------------------------------------

# BPF: LD|W|ABS, JMP|J{EQ,GE,SET}|K, RET|K
_LOAD, _JUMP_EQUAL, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16  # struct seccomp_data; both machines are little-endian
_SECCOMP_SET_MODE_FILTER, _MODE_FILTER = 1, 2
_TSYNC, _SPEC_ALLOW = 1 << 0, 1 << 2  # apply to every thread; do not slow the processor down, which would affect times
_X32_BIT = 0x40000000
_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_AF_UNIX, _AF_NETLINK = 1, 16

# name: numbers on x86_64 and aarch64. These reach memory and descriptors of other processes, the kernel itself, mounts
# and namespaces, keys and clocks. io_uring runs system calls that no filter sees. Some signals hide their sender.
# Connections to a container engine or a bus could act for the caller, and Landlock does not bound their sockets.
_DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "bpf": (321, 280),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "io_uring_setup": (425, 425), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "connect": (42, 203),
}  # fmt: skip
# name: (numbers, argument that must be 0: the caller itself). Otherwise a worker could slow or end its user's
# processes.
_ON_ITSELF_ALONE = {
    "prlimit64": ((302, 261), 0), "sched_setaffinity": ((203, 122), 0), "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0), "sched_setattr": ((314, 274), 0), "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3, _KILL, _TGKILL, _SECCOMP = (41, 198), (56, 220), (435, 435), (62, 129), (234, 131), (317, 277)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, AUDIT_ARCH


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _bpf(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one struct sock_filter."""
    return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


def _on_argument(number: int, argument: int, *tests: bytes) -> bytes:
    """Return a test of one system call: load an argument's lower half, run the tests, allow what passes them all."""
    body = [_bpf(_LOAD, _ARGS_OFFSET + 8 * argument), *tests, _bpf(_RETURN, _ALLOW)]
    return _bpf(_JUMP_EQUAL, number, 0, sum(map(len, body)) // 8) + b"".join(body)


def filter_program(machine: str, untouchable: Iterable[int]) -> bytes:
    """Return the filter of one machine, an array of struct sock_filter. untouchable: ids that kill(2) may not name."""
    column, arch = _MACHINES[machine]
    refuse, allow = _bpf(_RETURN, _REFUSE | errno.EPERM), _bpf(_RETURN, _ALLOW)
    parts = [_bpf(_LOAD, _ARCH_OFFSET), _bpf(_JUMP_EQUAL, arch, 1, 0), refuse, _bpf(_LOAD, _NR_OFFSET)]
    parts += [_bpf(_JUMP_GE, _X32_BIT, 0, 1), refuse]
    for numbers in _DENIED.values():
        parts += [_bpf(_JUMP_EQUAL, numbers[column], 0, 1), refuse]
    # A filter cannot read clone3's flags. If the call does not exist, the C library falls back to clone.
    parts += [_bpf(_JUMP_EQUAL, _CLONE3[column], 0, 1), _bpf(_RETURN, _REFUSE | errno.ENOSYS)]
    parts.append(_on_argument(_CLONE[column], 0, _bpf(_JUMP_SET, _NAMESPACES, 0, 1), refuse))
    known = [_bpf(_JUMP_EQUAL, _AF_UNIX, 2, 0), _bpf(_JUMP_EQUAL, _AF_NETLINK, 1, 0), refuse]
    parts.append(_on_argument(_SOCKET[column], 0, *known))
    for numbers, argument in _ON_ITSELF_ALONE.values():
        parts.append(_on_argument(numbers[column], argument, _bpf(_JUMP_EQUAL, 0, 1, 0), refuse))
    tests = [part for pid in untouchable for part in (_bpf(_JUMP_EQUAL, pid, 0, 1), refuse)]
    parts += [_on_argument(numbers[column], 0, *tests) for numbers in (_KILL, _TGKILL)]
    return b"".join(parts) + allow


def _seccomp(shielded: Iterable[int], *, every_thread: bool = True) -> str:
    """Install the filter, in every thread or in this one and what it starts. Raises OSError."""
    machine = platform.machine()
    if machine not in _MACHINES:
        return f"not applied: no table for {machine}"
    untouchable = [-1]
    for pid in {os.getppid(), *shielded} - {0}:
        untouchable.append(pid)
        try:
            untouchable.append(-os.getpgid(pid))
        except OSError:
            continue
    code = filter_program(machine, untouchable)
    program = _Program(len(code) // 8, code)
    try:
        flags = (_TSYNC if every_thread else 0) | _SPEC_ALLOW
        stray = _syscall(_SECCOMP[_MACHINES[machine][0]], _SECCOMP_SET_MODE_FILTER, flags, ctypes.pointer(program))
        if stray == 0:
            return "applied" if every_thread else "applied: to this thread and its children"
    except OSError:
        pass
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))
    return "applied: to this thread and its children"


# -- privileges and limits ---------------------------------------------------------------------------------------------


def _capabilities(keep: int = 0) -> str:
    """Drop every capability, also from the bounding set, so that no file can give one back.

    keep: bit mask of those that this thread keeps if it has them.
    """
    mine = capabilities(os.getpid()) & keep
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    kept = []
    for capability in range(last + 1):
        try:
            if prctl(PR_CAPBSET_READ, capability):
                prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            kept.append(capability)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
    sets = struct.pack("=6I", mine, mine, 0, 0, 0, 0)  # effective, permitted, inheritable; then those above 31
    if LIBC.capset(header, ctypes.create_string_buffer(sets, 24)) != 0:
        raise last_error()
    if mine:
        return "applied, except to the right of administrators, with which counters are read"
    return "applied" + (f": the bounding set keeps {len(kept)}, which no_new_privs makes useless" if kept else "")


def _limits() -> str:
    """Disable core files and bound file sizes. Processes are not bounded: the kernel counts them by user."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    size = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(_MAX_FILE_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return "applied"


def _first_to_go() -> str:
    Path("/proc/self/oom_score_adj").write_text("1000")
    return "applied"


def _do(option: int, value: int) -> str:
    prctl(option, value)
    return "applied"


def _tried(measure: Callable[[], str]) -> str:
    """Return the result of a measure, or why the kernel refused it."""
    try:
        return measure()
    except (OSError, ValueError) as error:
        return f"not applied: {error}"


def confine(scratch: Path, readable: list[Path], shielded: Iterable[int] = (), *, late: bool = False) -> dict[str, str]:
    """Confine this process for good. Return for each measure that it was applied, or why not.

    scratch: the only folder, beside shared memory, that it may write. readable: files and folders that it may read
    beyond the system's and Python's own. shielded: processes that it may not signal, beside its parent. late: for a
    process below a profiler, which has the profiler's threads and connections by now. Files, TCP, system calls and
    capabilities then bind this thread and what it starts, not the threads that run already; root keeps
    CAP_SYS_ADMIN; and the end of the parent's thread does not end this process.
    """
    measures = {
        "oom_score_adj": _first_to_go,
        "limits": _limits,
        "no_new_privs": lambda: _do(PR_SET_NO_NEW_PRIVS, 1),
        "capabilities": lambda: _capabilities(1 << CAP_SYS_ADMIN if late else 0),
        "landlock": lambda: _landlock(scratch, readable),
        "pdeathsig": lambda: _do(PR_SET_PDEATHSIG, signal.SIGKILL),
        "seccomp": lambda: _seccomp(shielded, every_thread=not late),
    }
    if late:
        measures["pdeathsig"] = lambda: "not applied: the parent's thread may end before its process"
    return {name: _tried(measure) for name, measure in measures.items()}


def shield() -> dict[str, str]:
    """Protect the judge or a trusted worker from other processes of the same user.

    These may not trace it or read its memory, environment and descriptors. It also adopts orphaned descendants.
    """
    return {
        "undumpable": _tried(lambda: _do(PR_SET_DUMPABLE, 0)),
        "subreaper": _tried(lambda: _do(PR_SET_CHILD_SUBREAPER, 1)),
    }
