"""The fork server: one process imports what every worker needs, and each worker is a fork of it.

Importing torch takes seconds of a core; a fork takes milliseconds. The launcher starts a fork server in a worker's
environment before it knows a problem or a solution, and the fork server never sees one. A fork holds an interpreter
that imported torch, Triton and the worker's code, once torch.compile is asked for that too, and nothing else. The fork
server makes no CUDA context, which a fork could not use, and no thread that a fork would miss.

Each worker is forked twice, so that it is orphaned at once. The launcher adopts orphans and becomes its parent: the
process that starts workers also ends them. A worker begins once the launcher has registered it. Then it is confined,
and becomes what its request names: a module with a function `serve`. The launcher's side of this module needs no torch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro import config
from repro.errors import JudgeError
from repro.judge.isolation import confinement, uids
from repro.judge.processes import preload, wire
from repro.system import importing
from repro.system.prctl import PR_SET_DUMPABLE, prctl

MESSAGE_BYTES = 1 << 16
_MOST_FDS = 64
_START_TIMEOUT_S = 120.0
# The module that a worker of solutions and baselines serves, imported before any worker is forked.
WORKER = "repro.judge.worker.server"
# The byte that tells a worker to begin, and the byte by which a fork server tells the launcher that it is ready.
BEGIN = b"B"


@dataclass(frozen=True)
class Request:
    """One worker to fork: the module it serves, device, scratch folder, user and whole environment.

    serves: a module whose `serve(request, confined)` answers the judge. If it has CONFINES_ITSELF, it is not confined
    before. compiles: whether the judge will ask it for torch.compile. fds: its read and write ends, then descriptors
    shared with the judge, as numbers in the worker; `Forkserver.fork` sends them. shielded: processes that it may not
    signal.
    """

    serves: str
    compiles: bool
    device: str
    scratch: str
    uid: int | None
    environment: dict[str, str]
    shielded: tuple[int, ...]
    fds: tuple[int, ...] = ()


# -- the launcher's side -----------------------------------------------------------------------------------------------


class Forkserver:
    """A fork server for workers on a device, `cpu` or `cuda`. It imports in the background.

    compiles: whether workers will be asked for torch.compile. Else it is imported with the first that is.
    """

    def __init__(self, device: str, *, compiles: bool = False) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.settimeout(_START_TIMEOUT_S)
        self.log = os.memfd_create("repro-forkserver")
        self.answers, self.ready = True, False
        # The folder is never made: nothing is written before a worker has its own.
        environment = config.worker_env(Path(tempfile.gettempdir()) / "repro-forkserver", interpret=device == "cpu")
        environment |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # an import that looks for a GPU must not call CUDA
        with theirs:
            command = [sys.executable, "-P", "-s", "-m", "repro.judge", "forkserver", str(theirs.fileno()), device]
            self.process = subprocess.Popen(
                [*command, *["compiles"] * compiles],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                cwd="/",  # root without its capabilities may not enter a worker's scratch folder
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def lives(self) -> bool:
        """Return whether the fork server can still be asked."""
        return self.answers and self.process.poll() is None

    def imported(self, timeout_s: float = 0.0) -> bool:
        """Return whether all imports are done and the fork server can be asked. Raises OSError if it ended."""
        if not self.ready and select.select([self.connection], [], [], timeout_s)[0]:
            self.ready = self.connection.recv(MESSAGE_BYTES) == BEGIN
            self.answers = self.ready
        return self.ready

    def fork(self, request: Request, log: int, begin: int, fds: list[int]) -> tuple[int, list[int]]:
        """Fork a worker that prints to `log` and waits for BEGIN from `begin`.

        Return its process id and its numbers of `fds`. The process that adopts this process's orphans is its parent.
        Raises JudgeError.
        """
        try:
            if not self.imported(_START_TIMEOUT_S):
                raise OSError("the imports of a worker did not finish")
            socket.send_fds(self.connection, [json.dumps(asdict(request)).encode()], [log, begin, *fds])
            answer = json.loads(self.connection.recv(MESSAGE_BYTES) or b"{}")
        except (OSError, ValueError) as error:
            self.answers = False
            raise JudgeError("no worker could be started", f"{error}. {self._tail()}") from error
        if "pid" not in answer:
            self.answers = "error" in answer
            raise JudgeError("no worker could be started", answer.get("error") or self._tail())
        return answer["pid"], answer["fds"]

    def _tail(self) -> str:
        return " | ".join(wire.printed(self.log).strip().splitlines()[-3:]) or "the process that forks workers ended"

    def close(self) -> None:
        """End the fork server; its workers go on."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        os.close(self.log)


@dataclass
class Forked:
    """A child process that a fork server forked, and that this process adopted."""

    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (a signal as a negative number), or None while it runs.

        0 if unknown: a process that ignores SIGCHLD, perhaps inherited from its parent, gets no exit status.
        """
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


# -- the fork server itself --------------------------------------------------------------------------------------------


def work(connection: socket.socket, device: str, *, compiles: bool) -> None:
    """Fork workers until the launcher is gone. In each, confine the process, then become what its request names.

    A worker is confined before it reads anything from its judge. Landlock binds the calling thread and what it starts;
    a fork has one thread, whatever the imports started.
    """
    request = _forked(connection, device, compiles)
    scratch = Path(request.scratch)
    os.chdir(scratch)
    if os.geteuid() == 0:  # child processes of confined root, in which torch compiles, have no CUDA
        config.compile_alone()
    module = importlib.import_module(request.serves)
    late = getattr(module, "CONFINES_ITSELF", False)
    module.serve(request, {} if late else confinement.confine(scratch, [], request.shielded))


def _forked(connection: socket.socket, device: str, compiles: bool) -> Request:
    """Fork workers until the launcher is gone, then end this process.

    Returns in every worker, with the worker's request, once the launcher has told it to begin.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored SIGCHLD is inherited
    prctl(PR_SET_DUMPABLE, 0)  # workers of the same user must not read the memory that later workers are forked from
    with importing.uncollected(), ThreadPoolExecutor(1) as beside:  # whose thread has ended before the first fork
        importlib.import_module("triton")
        if device != "cpu":
            beside.submit(preload.read_triton)
        importlib.import_module(WORKER)
        if compiles:
            preload.compiler()
    connection.send(BEGIN)
    us = os.getpid()
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, _MOST_FDS)
        except OSError:
            data, fds = b"", []
        if not data:
            os._exit(0)
        message = json.loads(data)
        request = Request(**message | {"shielded": (*message["shielded"], us), "fds": tuple(fds[2:])})
        if request.compiles and device != "cpu":
            preload.compiler()
        answer: dict[str, Any]
        try:
            pid = _fork_twice()
        except OSError as error:
            answer = {"error": str(error)}
        else:
            if pid == 0:
                connection.close()
                _begin(request, *fds[:2])
                return request
            answer = {"pid": pid, "fds": fds[2:]}
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            connection.send(json.dumps(answer).encode())


def _fork_twice() -> int:
    """Fork a grandchild and let its parent end. Return its process id, or 0 in the grandchild. Raises OSError."""
    heard, tell = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(heard)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(tell, f"-{error.errno}".encode())
            os._exit(1)
        if pid:
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.close(tell)
        return 0
    os.close(tell)
    pid = int(os.read(heard, 32) or b"-11")
    os.close(heard)
    os.waitpid(between, 0)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _begin(request: Request, log: int, begin: int) -> None:
    """Give a fork its session, output, user and environment, as if it had been started for this worker."""
    os.setsid()
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    if os.read(begin, 1) != BEGIN:
        os._exit(1)
    os.close(begin)
    if request.uid is not None:
        uids.become(request.uid)
    prctl(PR_SET_DUMPABLE, 1)
    config.take_environment(request.environment)
    tempfile.tempdir = None
