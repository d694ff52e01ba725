"""Starts, stops and ends workers. This part alone may run as root; it never sees a solution or a tensor.

The launcher is a process of its own: it has workers forked (`forkserver.py`) when the judge asks for them, and ends
them. `divide()` splits the process of a job: it forks the launcher, and that the judge. Elsewhere, as in a program that
calls `evaluate`, the first use starts a launcher below the judge.

With a root parent (root on a machine, or a container started with SETUID and SETGID) every worker gets its own user.
Inside the image the judge gets its own user too. Each worker's user has one helper process, its warden. The warden
makes the scratch folder and signals *every* process of that user at once, so a fork cannot escape.

Otherwise all workers share one user. Workers are then signalled by process group, and processes that left their group
are found as orphans of the launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from repro import config
from repro.errors import JudgeError
from repro.judge.isolation import reaper
from repro.judge.isolation import uids as users
from repro.judge.processes.forkserver import BEGIN, MESSAGE_BYTES, WORKER, Forked, Forkserver, Request
from repro.system import removal
from repro.system.prctl import CAP_SYS_ADMIN, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl
from repro.system.procfs import capabilities, children, descendants, of_user
from repro.system.procfs import kill as end

_ACK_TIMEOUT_S = 10.0
STOP, GO, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
_REMOVE = 0  # is no signal: it ends a warden
# Errors that end one request only: the launcher reports them to the judge and serves the next request.
_FAILURES = (OSError, JudgeError, KeyError, ValueError, StopIteration, subprocess.SubprocessError)


@dataclass
class Started:
    """The judge's handle of a worker: process id, scratch folder, user, and the worker's descriptor numbers."""

    pid: int
    scratch: str
    uid: int | None
    fds: list[int]
    commands: int | None = None
    answers: int | None = None
    stopped: list[int] = field(default_factory=list, init=False)

    def signal(self, number: int, known: list[int] | None = None) -> bool:
        """Send STOP, GO or KILL to every process of the worker. Return False if its warden no longer answers.

        known: its processes, for a caller that has just listed them. Searching /proc takes milliseconds.
        """
        if self.commands is None or self.answers is None:
            # A stopped process cannot fork, so GO needs no search.
            pids = self.stopped if number == GO and self.stopped else known or descendants(self.pid)
            self.stopped = pids if number == STOP else []
            end(pids, number)  # includes processes in sessions of their own
            return True
        try:
            os.write(self.commands, bytes([number]))
            ready, _, _ = select.select([self.answers], [], [], _ACK_TIMEOUT_S)
            return bool(ready) and os.read(self.answers, 1) == bytes([number])
        except OSError:
            return False

    def close(self) -> None:
        """Close the warden's pipes, which ends the warden."""
        for fd in (self.commands, self.answers):
            if fd is not None:
                os.close(fd)
        self.commands = self.answers = None


class Launcher:
    """Starts workers as children of this process, which adopts orphans.

    uids: users to assign to workers, or None. judge: process id that workers must not be able to signal.
    """

    def __init__(self, uids: Iterator[int] | None = None, judge: int | None = None) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.uids, self.judge = uids, judge or os.getpid()
        self.others = set(children(os.getpid()))
        self.children: dict[int, Forked] = {}
        self.started: dict[int, Started] = {}
        self.wardens: dict[int, int] = {}
        self.forkservers: dict[str, Forkserver] = {}

    def workers(self) -> list[int]:
        """Return the process ids of the workers that have not been removed."""
        return list(self.started)

    def start_forkserver(self, device: str, *, compiles: bool = False) -> None:
        """Start the fork server of a device, unless it runs. Its imports go on. compiles: as for `Forkserver`."""
        old = self.forkservers.get(device)
        if old is None or not old.lives():
            if old is not None:
                old.close()
            self.forkservers[device] = Forkserver(device, compiles=compiles)

    def start(
        self, name: str, device: str, fds: list[int], log: int, serves: str = WORKER, *, compiles: bool = False,
        own_user: bool = True,
    ) -> Started:  # fmt: skip
        """Start a worker.

        fds: its first two are the descriptors that the worker reads and writes. log: receives what the worker prints.
        serves, compiles: as in `Request`. own_user: whether it gets a user of its own where there are any, or this
        process's user.
        """
        if self.uids is None or not own_user:
            begun = Started(0, tempfile.mkdtemp(prefix=f"repro-{name}-"), None, fds)
        else:
            begun = self._warden(next(self.uids), name)
        begin, tell = os.pipe()
        try:
            environment = config.worker_env(Path(begun.scratch), interpret=device == "cpu")
            shielded = (self.judge, os.getppid())
            request = Request(serves, compiles, device, begun.scratch, begun.uid, environment, shielded)
            self.start_forkserver(device)
            pid, numbers = self.forkservers[device].fork(request, log, begin, fds)
            self.children[pid] = Forked(pid)
            self.started[pid] = begun = replace(begun, pid=pid, fds=numbers)
            os.write(tell, BEGIN)  # only now is the worker registered, so it cannot be mistaken for an orphan
        except BaseException:
            if begun.pid:
                self.remove(begun.pid)
            else:
                self._clear(begun)
            raise
        finally:
            os.close(begin)
            os.close(tell)
        return begun

    def _warden(self, uid: int, name: str) -> Started:
        """Start a helper under a worker's user: it makes the scratch folder, then signals all processes of that user.

        Return the handle of a worker that has still to start. Raises JudgeError.
        """
        from_us, commands = os.pipe()
        answers, to_us = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(from_us, 0)
                os.dup2(to_us, 1)
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                users.become(uid)
                prctl(PR_SET_DUMPABLE, 0)
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                _serve_user(name, 0, 1)
            finally:
                os._exit(0)
        os.close(from_us)
        os.close(to_us)
        self.wardens[commands] = pid
        scratch = os.read(answers, 4096).decode()
        if not scratch:
            raise JudgeError(f"no scratch folder for user {uid}", f"{tempfile.gettempdir()} is not writable for it")
        return Started(0, scratch, uid, [], commands, answers)

    def poll(self, pid: int) -> int | None:
        """Return the worker's exit status (as subprocess gives it), or None while it runs."""
        return self.children[pid].poll()

    def kill(self, pid: int) -> None:
        """Kill a worker and every process that it left. Return when they are gone."""
        started = self.started[pid]
        deadline, asked = time.monotonic() + _ACK_TIMEOUT_S, False
        while time.monotonic() < deadline:
            left = self._left(started)
            if started.uid is None:
                end(left)  # processes forked meanwhile are found in the next round
                hunted = False
                while reaper.kill(self._known()) and time.monotonic() < deadline:
                    hunted = True
                if not hunted and not left:
                    break
            elif asked and not left:
                break
            elif not started.signal(KILL):  # the whole user at once, including processes not seen in /proc
                self._sweep(started.uid, lambda: os.kill(-1, KILL))
            asked = True
            self.children[pid].poll()
            reaper.reap(self._known())
            time.sleep(0.002)
        while self.children[pid].poll() is None and time.monotonic() < deadline + _ACK_TIMEOUT_S:
            time.sleep(0.002)

    def _left(self, started: Started) -> list[int]:
        """Return the living processes of a worker: its user's except the warden, or its descendants and orphans."""
        if started.uid is None:
            return [*descendants(started.pid), *reaper.orphans(self._known())]
        return [pid for pid in of_user(started.uid) if pid != self.wardens.get(started.commands or -1)]

    def _known(self) -> set[int]:
        return {
            self.judge,
            *self.others,
            *self.children,
            *self.wardens.values(),
            *(server.process.pid for server in self.forkservers.values()),
        }

    def _sweep(self, uid: int, work: Callable[[], None]) -> None:
        """Run `work` as a worker's user, for use when its warden is gone."""
        pid = os.fork()
        if pid == 0:
            try:
                users.become(uid)
                work()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def remove(self, pid: int) -> None:
        """Kill a worker and remove its scratch folder."""
        self.kill(pid)
        started = self.started.pop(pid)
        self.children.pop(pid)
        self._clear(started)

    def _clear(self, started: Started) -> None:
        """Remove the folder of a dead worker, and end its warden."""
        if started.uid is None:
            removal.remove(started.scratch)
        elif not started.signal(_REMOVE):
            # The worker's processes are dead, but they may have stopped the warden, which would then never end.
            self._sweep(started.uid, lambda: os.kill(-1, KILL))
            self._sweep(started.uid, lambda: users.clear(started.scratch))
        if started.commands is not None:
            warden = self.wardens.pop(started.commands)
            started.close()
            os.waitpid(warden, 0)

    def end(self) -> None:
        """End every remaining worker, and the fork servers."""
        for pid in list(self.started):
            self.remove(pid)
        while self.forkservers:
            self.forkservers.popitem()[1].close()


def _serve_user(name: str, commands: int, answers: int) -> None:
    """Run the warden: read the number of a signal, send it to all processes of this user, write the number back."""
    scratch = tempfile.mkdtemp(prefix=f"repro-{name}-")
    os.write(answers, scratch.encode())
    while command := os.read(commands, 1):
        if command[0] == _REMOVE:
            users.clear(scratch)
            os.write(answers, command)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, command[0])
        os.write(answers, command)


class RemoteLauncher:
    """The judge's client of its launcher. process: the launcher if it was started below the judge."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self.connection, self.process = connection, process
        self._lock = threading.Lock()

    def _ask(self, op: str, *arguments: object, fds: Sequence[int] = (), **named: object) -> tuple[Any, list[int]]:
        """Have the launcher call its method `op`. Return the value and descriptors. Raises JudgeError."""
        data, received = b"", list[int]()
        why = "its connection is closed"
        try:
            with self._lock:
                socket.send_fds(self.connection, [json.dumps([op, arguments, named]).encode()], list(fds))
                data, received, _, _ = socket.recv_fds(self.connection, MESSAGE_BYTES, 8)
        except OSError as error:
            why = str(error)
        if not data:
            raise JudgeError("the launcher of workers has ended", why)
        answer = json.loads(data)
        if "error" in answer:
            raise JudgeError("the launcher of workers failed", answer["error"])
        return answer["value"], list(received)

    def _call(self, op: str, *arguments: object, **named: Any) -> Any:
        return self._ask(op, *arguments, **named)[0]

    def start(self, name: str, device: str, fds: list[int], log: int, **how: object) -> Started:
        """Start a worker, see `Launcher.start`."""
        started, pipes = self._ask("start", name, device, fds=[log, *fds], **how)
        return Started(*started, *pipes)

    # Each as the method of `Launcher`. The launcher ends all workers by itself when its judge ends.
    start_forkserver = functools.partialmethod(_call, "start_forkserver")
    workers = functools.partialmethod(_call, "workers")
    poll = functools.partialmethod(_call, "poll")
    kill = functools.partialmethod(_call, "kill")
    remove = functools.partialmethod(_call, "remove")
    end = functools.partialmethod(_call, "end")

    def close(self) -> None:
        """End the launcher that was started below this process, with its workers."""
        self.connection.close()
        if self.process is not None:
            self.process.wait()


def _answer(
    launcher: Launcher, op: str, arguments: Any, named: dict[str, Any], fds: list[int]
) -> tuple[object, list[int]]:
    """Carry out one request. Return its value, and descriptors for the judge."""
    if op == "start":
        name, device = arguments
        started = launcher.start(name, device, fds[1:], fds[0], **named)
        pipes = [fd for fd in (started.commands, started.answers) if fd is not None]
        return [started.pid, started.scratch, started.uid, started.fds], pipes
    if op not in ("start_forkserver", "workers", "poll", "kill", "remove", "end"):
        raise ValueError(f"no request {op!r}")
    return getattr(launcher, op)(*arguments, **named), []


def _serve(connection: socket.socket, launcher: Launcher) -> None:
    """Serve a judge until it ends, then end its workers."""
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 64)
        except OSError:
            break
        if not data:
            break
        answer, pipes = dict[str, object](), list[int]()
        try:
            op, arguments, named = json.loads(data)
            answer["value"], pipes = _answer(launcher, op, arguments, named, list(fds))
        except _FAILURES as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [json.dumps(answer).encode()], pipes)
    launcher.end()


_current: RemoteLauncher | None = None
_apart = False


def current() -> RemoteLauncher:
    """Return the launcher of this process: its parent if `divide` was called, else one that is started now."""
    global _current
    if _current is None:
        _current = _below()
        atexit.register(_close, _current, os.getpid())
    return _current


def _below() -> RemoteLauncher:
    """Start a launcher below this process. It gives workers no users of their own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", "-s", "-m", "repro.judge", "launcher", str(theirs.fileno()), str(os.getpid())]
        environment = config.environment() | {"PYTHONPATH": config.python_path()}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()])
    return RemoteLauncher(ours, process)


def _close(launcher: RemoteLauncher, pid: int) -> None:
    """End the launcher at exit, but not in a fork of the process that started it."""
    if os.getpid() == pid:
        launcher.close()


def serve_below(connection: socket.socket, judge: int) -> None:
    """Be the launcher of a judge that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the judge decides
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_DUMPABLE, 0)  # workers of the same user must not reach the memory of the process that ends them
    _serve(connection, Launcher(judge=judge))


def may_administer() -> bool:
    """Return whether workers have users of their own, and the launcher's user has a right of administrators beside."""
    return _apart and bool(capabilities(os.getppid()) & 1 << CAP_SYS_ADMIN)


def _end_as(pid: int) -> NoReturn:
    """Wait for a child process, and end this one by the same exit code or signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(1)
    os._exit(code if code >= 0 else 128 - code)


def divide() -> None:
    """Fork the launcher, which forks the judge, and return in the judge.

    This process and the launcher exit with the judge's exit code. When one of the three ends, the others and the
    workers end too. The launcher is no child of the engine: Ray kills the children of a process that it ends, and the
    launcher must end the workers then.
    """
    global _current, _apart
    first = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        _end_as(pid)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != first:
        os._exit(1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    users_of_their_own = users.may_change()
    judge_uid = config.CONTAINER_UID if users_of_their_own and config.in_container() else None
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        if judge_uid is not None:
            users.become(judge_uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _current, _apart = RemoteLauncher(theirs), users_of_their_own
        return
    theirs.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: end([pid]))
    given = users.free(judge_uid, contained=config.in_container())
    _serve(ours, Launcher(given if users_of_their_own else None, pid))
    _end_as(pid)
