"""`repro standby SOCKET`: a process that has imported what judging needs and runs each command as a fork of itself.

An agent's `repro evaluate` takes seconds to start, mostly for imports. The standby of a sitting pays for them once, at
the first command. It holds no problem, fixture or tensor and makes no CUDA context. A fork runs one command and ends,
so a solution finds what it would find in a new process, and one that crashes or hangs ends its own fork alone.

`standby_client.py` is the other side. A command's fork ends when its client does, and when the standby does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence

from repro import config
from repro.judge.processes import forkserver, preload
from repro.system import importing
from repro.system.prctl import PR_SET_PDEATHSIG, prctl
from repro.system.procfs import descendants, kill

# Beginnings of the names of variables that a library reads when it is imported. A command that has other values of them
# needs a new process.
READ_AT_IMPORT = ("ATEN_", "CUBLAS", "CUDNN", "GOMP_", "KMP_", "LD_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON",
                  "PYTORCH_", "TORCH", "TRITON_")  # fmt: skip


def serve(number: int, modules: Sequence[str]) -> list[str]:
    """Fork for every connection to a socket. Return in each fork, with the words of its command.

    number: the descriptor of the socket, which listens already. modules: imported before the first fork. This process
    ends with the thread that started it.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for each in (signal.SIGINT, signal.SIGTERM):  # elsewhere these end `repro` in an orderly way, with an exit code
        signal.signal(each, signal.SIG_DFL)
    listener, environment = socket.socket(fileno=number), config.environment()
    heard, tell = socket.socketpair()
    for end in (heard, tell):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    _import(modules, compiled="TRITON_INTERPRET" not in environment)
    forks: dict[int, socket.socket] = {}
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.register(heard, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == heard.fileno():
                heard.recv(4096)
            elif fd == listener.fileno():
                connection, _ = listener.accept()
                try:
                    pid = os.fork()
                except OSError:  # the client starts a new process, or says why it cannot
                    connection.close()
                    continue
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for inherited in (listener, heard, tell, *forks.values()):
                        inherited.close()
                    return _become(connection, environment)
                forks[pid] = connection
                poller.register(connection, select.POLLRDHUP)
            else:  # a client has ended
                poller.unregister(fd)
                kill(descendants(next(pid for pid, each in forks.items() if each.fileno() == fd)))
        _reap(forks, poller)


def _import(modules: Sequence[str], *, compiled: bool) -> None:
    """Import modules, so that a fork finds them as after an import of its own. Ends this process if it cannot.

    compiled: whether Triton compiles, and does not interpret.
    """
    config.check_cuda_by_nvml()
    with importing.uncollected():
        for name in modules:
            importlib.import_module(name)
        if compiled:
            preload.read_triton()
    if forkserver.has_called_cuda():
        sys.exit("the imports called the CUDA driver, which then fails in every fork")


def _reap(forks: dict[int, socket.socket], poller: select.poll) -> None:
    """Send the wait status of each fork that has ended to its client."""
    for pid, connection in list(forks.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with contextlib.suppress(KeyError):
                poller.unregister(connection)
            with contextlib.suppress(OSError), connection:
                connection.sendall(b"%d\n" % status)
            del forks[pid]


def _become(connection: socket.socket, environment: dict[str, str]) -> list[str]:
    """Take the streams, folder and environment of the client's command, as if it had started this process.

    Return the words of the command. environment: under which the modules were imported. If the command's own differs in
    what they read then, this process becomes a new one.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    head, fds, _, _ = socket.recv_fds(connection, 4, 3)
    with connection, connection.makefile("rb") as stream:
        if len(head) < 4 or len(fds) < 3:
            os._exit(1)  # it has ended, or is no client
        told = json.loads(stream.read(int.from_bytes(head)))
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(told["folder"])
        connection.sendall(b"%d\n" % os.getpid())
    config.take_environment(told["environment"])
    tempfile.tempdir = None
    words: list[str] = told["words"]
    different = _differing(environment, told["environment"])
    if different:
        if {"-v", "--verbose"} & set(words):
            print(f"repro: in a new process: {different[0]} is not as at the start", file=sys.stderr, flush=True)
        os.execv(config.COMMAND[0], [*config.COMMAND, *words])  # noqa: S606
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(line_buffering=output is sys.stderr or os.isatty(1))  # type: ignore[union-attr]
    return words


def _differing(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return the names of variables that differ and are read when a library is imported."""
    names = {*ours, *theirs}
    return sorted(name for name in names if name.startswith(READ_AT_IMPORT) and ours.get(name) != theirs.get(name))
