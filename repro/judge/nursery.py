"""The nursery: one process imports what every worker needs, and a worker is a fork of it.

Importing torch takes seconds of a core; a fork takes milliseconds. The launcher starts a nursery in a worker's
environment before anything is known of a problem or a solution, and it never sees one: what it forks has an
interpreter that imported torch, Triton and the worker's own code, and nothing else. It makes no CUDA context, which a
fork could not use, and no thread that a fork would miss. Where many cells follow each other, a second one imports
torch.compile too, and workers of the torch baselines are forks of that one as soon as it is there.

Each worker is forked twice, so that it is orphaned at once and the launcher, which adopts orphans, is its parent:
whoever starts workers also ends them. It begins when the launcher has written it down. The launcher's end needs no
torch.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro import settings
from repro.errors import JudgeError
from repro.judge import users, warm
from repro.judge.confine import PR_SET_DUMPABLE, prctl

MESSAGE_BYTES = 1 << 16
MOST_FDS = 64
START_TIMEOUT_S = 120.0
TAIL_BYTES = 2000
# What a worker is for, as the launcher is told: the torch baselines, which compile.
COMPILES = "baselines"
# What a worker reads when it shall begin, from a descriptor of its own; and the launcher when a nursery is ready.
BEGIN = b"B"


@dataclass(frozen=True)
class Request:
    """One worker: whose requests it serves, where, for whom, and its whole environment. fds: what it reads, what it
    writes, and what else it shares with the judge; `Nursery.fork` sends them, and they are numbers of the worker.
    shielded: processes that it may not signal."""

    serves: str
    device: str
    scratch: str
    uid: int | None
    environment: dict[str, str]
    shielded: tuple[int, ...]
    fds: tuple[int, ...] = ()


# -- the launcher's end ------------------------------------------------------------------------------------------------


class Nursery:
    """A nursery for workers of one kind of device, or for those that compile; it imports while the caller goes on."""

    def __init__(self, device: str, *, compiles: bool = False) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.settimeout(START_TIMEOUT_S)
        self.log = os.memfd_create("repro-nursery")
        self.answers, self.ready = True, False
        # no folder: nothing is written before a worker has its own
        environment = settings.worker_env(Path(tempfile.gettempdir()) / "repro-nursery", interpret=device == "cpu")
        environment |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # torch.compile's import asks whether there is a GPU
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-s",
                    "-m",
                    "repro.judge",
                    str(theirs.fileno()),
                    kind_of(device),
                    *([COMPILES] if compiles else []),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                cwd="/",  # root without its rights may not enter a worker's scratch folder
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def lives(self) -> bool:
        """Whether it can still be asked."""
        return self.answers and self.process.poll() is None

    def imported(self, timeout_s: float = 0.0) -> bool:
        """Whether it has all that a worker needs, and can be asked. Raises OSError where it ended."""
        if not self.ready and select.select([self.connection], [], [], timeout_s)[0]:
            self.ready = self.connection.recv(MESSAGE_BYTES) == BEGIN
            self.answers = self.ready
        return self.ready

    def fork(self, request: Request, log: int, begin: int, fds: list[int]) -> tuple[int, list[int]]:
        """A worker that prints to `log` and waits for BEGIN from `begin`: its process id, which is a child of whoever
        adopts this process's orphans, and its numbers of `fds`. Raises JudgeError."""
        try:
            if not self.imported(START_TIMEOUT_S):
                raise OSError("it did not import what a worker needs")
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
        size = os.fstat(self.log).st_size
        printed = os.pread(self.log, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")
        return " | ".join(printed.strip().splitlines()[-3:]) or "the process that forks workers ended"

    def close(self) -> None:
        """Ends it; its workers go on."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        os.close(self.log)


class Nurseries:
    """Those of one launcher."""

    def __init__(self) -> None:
        self.begun: dict[tuple[str, bool], Nursery] = {}

    def begin(self, device: str, *, compiles: bool = False) -> Nursery:
        """Has the imports of a device's workers begin, where they have not, and does not wait. What compiles can do
        without a nursery; one that ended is not made anew."""
        nursery = self.begun.get((kind_of(device), compiles))
        if nursery is None or not (nursery.lives() or compiles):
            if nursery is not None:
                nursery.close()
            nursery = self.begun[kind_of(device), compiles] = Nursery(device, compiles=compiles)
        return nursery

    def of(self, device: str, serves: str) -> Nursery:
        """Who forks a worker now: for one that compiles, the nursery that imported that, where it is ready."""
        compiling = self.begun.get((kind_of(device), True)) if serves == COMPILES else None
        with contextlib.suppress(OSError):
            if compiling is not None and compiling.lives() and compiling.imported():
                return compiling
        return self.begin(device)

    def rest(self, signal_: int) -> None:
        """SIGSTOP or SIGCONT to those that import."""
        for nursery in self.begun.values():
            with contextlib.suppress(OSError):
                if nursery.lives() and not nursery.imported():
                    nursery.process.send_signal(signal_)

    def pids(self) -> set[int]:
        """Their process ids."""
        return {nursery.process.pid for nursery in self.begun.values()}

    def close(self) -> None:
        """Ends them; their workers go on."""
        for nursery in self.begun.values():
            nursery.close()
        self.begun.clear()


def kind_of(device: str) -> str:
    """Workers of these have the same environment, but for their folders."""
    return "cpu" if device == "cpu" else "cuda"


class Forked:
    """A child of this process that it did not start itself."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        """How it ended (a signal as a negative number), or None while it runs. 0 where nobody can know: a process that
        ignores SIGCHLD, as its parent may have made it, is not told."""
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


# -- the nursery itself ------------------------------------------------------------------------------------------------


def serve(connection: socket.socket, device: str, *, compiles: bool = False) -> Request:
    """Forks workers until the launcher is gone, and then ends this process. Returns in every worker, with what it is to
    be, once the launcher has told it to begin."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where whoever started us ignores it, so did we
    prctl(PR_SET_DUMPABLE, 0)  # under one user, no worker may look into what later workers are made of
    importlib.import_module("triton")
    importlib.import_module("repro.judge.worker")
    if device != "cpu":
        warm.read_triton()
    if compiles:
        warm.import_compiler()
        if _has_called_cuda():  # where NVML did not answer
            sys.exit("the imports called the CUDA driver, which then works in no fork")
    gc.collect()
    gc.freeze()  # a worker's collections leave the pages alone that it shares with the others
    connection.send(BEGIN)
    us = os.getpid()
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, MOST_FDS)
        except OSError:
            data, fds = b"", []
        if not data:
            os._exit(0)
        told = json.loads(data)
        request = Request(**told | {"shielded": (*told["shielded"], us), "fds": tuple(fds[2:])})
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


def _has_called_cuda() -> bool:
    """Whether CUDA would fail in a fork of this process, as a fork says."""
    pid = os.fork()
    if pid == 0:
        os._exit(int(sys.modules["torch"].cuda._is_in_bad_fork()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _fork_twice() -> int:
    """The process id of a grandchild whose parent has ended; 0 in that grandchild. Raises OSError."""
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
    """Makes a fork what a process started for this worker would be: session, user, output, environment."""
    os.setsid()
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    if os.read(begin, 1) != BEGIN:
        os._exit(1)
    os.close(begin)
    if request.uid is not None:
        users.become(request.uid)
    prctl(PR_SET_DUMPABLE, 1)
    settings.take_environment(request.environment)
    tempfile.tempdir = None
