"""Starting, stopping and ending workers: the one part that may run as root, and that never sees a solution or a tensor.

`divide()` splits the process of a cell in two before torch is imported. The parent becomes the launcher: it has workers
forked (`nursery`) on the judge's demand and ends them. The child goes on as the judge. Where the parent is root (a
container that starts with SETUID and SETGID, or root on a machine without one), every worker gets a user of its own,
and inside the image the judge gets one too. A worker's user has one helper, its warden: it makes the scratch folder,
and signals *every* process of that user at once, so that a fork cannot stay behind. Without root all share one user;
then workers are signalled by their process groups, and what left its group is found as an orphan of the launcher.
"""

from __future__ import annotations

import atexit
import contextlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repro import folders, settings
from repro.errors import JudgeError
from repro.judge import orphans, users
from repro.judge.confine import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl
from repro.judge.nursery import BEGIN, Forked, Nurseries, Request
from repro.judge.procfs import descendants, of_user

MESSAGE_BYTES = 1 << 16
ACK_TIMEOUT_S = 10.0
STOP, GO, KILL, REMOVE = b"S", b"C", b"K", b"R"
# What may go wrong for one request; the launcher tells the judge and goes on.
FAILURES = (OSError, JudgeError, KeyError, ValueError, StopIteration, subprocess.SubprocessError)
SIGNALS = {STOP: signal.SIGSTOP, GO: signal.SIGCONT, KILL: signal.SIGKILL}


@dataclass
class Started:
    """A worker as its judge holds it: process id, scratch folder, user, numbers of the inherited descriptors there."""

    pid: int
    scratch: str
    uid: int | None
    fds: list[int]
    commands: int | None = None
    answers: int | None = None
    stopped: list[int] = field(default_factory=list, init=False)

    def signal(self, command: bytes) -> bool:
        """STOP, GO or KILL to every process of the worker; False where its warden no longer answers."""
        if self.commands is None or self.answers is None:
            # Who is stopped forks nobody, and to look for processes takes milliseconds of the call that is woken.
            pids = self.stopped if command == GO and self.stopped else descendants(self.pid)
            self.stopped = pids if command == STOP else []
            for pid in pids:  # those in sessions of their own too
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, SIGNALS[command])
            return True
        try:
            os.write(self.commands, command)
            ready, _, _ = select.select([self.answers], [], [], ACK_TIMEOUT_S)
            return bool(ready) and os.read(self.answers, 1) == command
        except OSError:
            return False

    def close(self) -> None:
        """Gives the warden's pipes back, which ends it."""
        for fd in (self.commands, self.answers):
            if fd is not None:
                os.close(fd)
        self.commands = self.answers = None


class Launcher:
    """Starts workers as children of this process, which adopts orphans. uids: users to give them; judge: who must not
    be signalled."""

    def __init__(self, uids: Iterator[int] | None = None, judge: int | None = None) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.uids, self.judge = uids, judge or os.getpid()
        self.children: dict[int, Forked] = {}
        self.started: dict[int, Started] = {}
        self.wardens: dict[int, int] = {}
        self.nurseries = Nurseries()

    def nurse(self, device: str, *, compiles: bool = False) -> None:
        """Has the imports of a device's workers begin, or of those that compile, and does not wait."""
        self.nurseries.begin(device, compiles=compiles)

    def rest(self, command: bytes) -> None:
        """STOP or GO to what imports, beside which nothing is timed."""
        self.nurseries.rest(SIGNALS[command])

    def start(self, name: str, device: str, fds: list[int], log: int, serves: str = "judge") -> Started:
        """A worker; the first two of `fds` are what it reads and writes, `log` takes what it prints. serves: whose
        requests it answers, the judge's or those of the published protocol (`parity`)."""
        uid = next(self.uids) if self.uids is not None else None
        commands = answers = None
        if uid is None:
            scratch = tempfile.mkdtemp(prefix=f"repro-{name}-")
        else:
            commands, answers, scratch = self._warden(uid, name)
        begun = Started(0, scratch, uid, fds, commands, answers)
        begin, tell = os.pipe()
        try:
            environment = settings.worker_env(Path(scratch), interpret=device == "cpu")
            request = Request(serves, device, scratch, uid, environment, (self.judge,))
            pid, numbers = self.nurseries.of(device, serves).fork(request, log, begin, fds)
            self.children[pid] = Forked(pid)
            self.started[pid] = begun = replace(begun, pid=pid, fds=numbers)
            os.write(tell, BEGIN)  # not before it is known here, so that nobody takes it for what a worker left
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

    def _warden(self, uid: int, name: str) -> tuple[int, int, str]:
        """A helper under a worker's user: makes its scratch folder, then signals all that this user runs."""
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
            raise JudgeError(f"no scratch folder for user {uid}", f"{tempfile.gettempdir()} is not open to it")
        return commands, answers, scratch

    def poll(self, pid: int) -> int | None:
        """How a worker ended (as subprocess says it), or None while it runs."""
        return self.children[pid].poll()

    def kill(self, pid: int) -> None:
        """Kills a worker and everything that it left; returns when they are gone."""
        started = self.started[pid]
        deadline, asked = time.monotonic() + ACK_TIMEOUT_S, False
        while time.monotonic() < deadline:
            left = self._left(started)
            if started.uid is None:
                for each in left:  # what forks meanwhile is met next time
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(each, signal.SIGKILL)
                if not self._hunted(deadline) and not left:
                    break
            elif asked and not left:
                break
            elif not started.signal(KILL):  # all at once, also whom nobody saw
                self._sweep(started.uid, lambda: os.kill(-1, signal.SIGKILL))
            asked = True
            self.children[pid].poll()
            orphans.reap(self._known())
            time.sleep(0.002)
        while self.children[pid].poll() is None and time.monotonic() < deadline + ACK_TIMEOUT_S:
            time.sleep(0.002)

    def _left(self, started: Started) -> list[int]:
        """What lives of a worker: all of its user but the warden, or its descendants and what this process adopted."""
        if started.uid is None:
            return [*descendants(started.pid), *orphans.found(self._known(), alone=self._alone)]
        return [pid for pid in of_user(started.uid) if pid != self.wardens.get(started.commands or -1)]

    def _known(self) -> set[int]:
        return {self.judge, *self.children, *self.wardens.values(), *self.nurseries.pids()}

    @property
    def _alone(self) -> bool:
        return self.judge != os.getpid()

    def _hunted(self, deadline: float) -> bool:
        """Kills orphans until there are none, or until then; whether there were any."""
        known, found = self._known(), False
        while orphans.kill(known, alone=self._alone) and time.monotonic() < deadline:
            found = True
        return found

    def _sweep(self, uid: int, work: Callable[[], None]) -> None:
        """Does some work as a worker's user, where its warden is gone."""
        pid = os.fork()
        if pid == 0:
            try:
                users.become(uid)
                work()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def remove(self, pid: int) -> None:
        """Kills a worker and removes its scratch folder."""
        self.kill(pid)
        started = self.started.pop(pid)
        self.children.pop(pid)
        self._clear(started)

    def _clear(self, started: Started) -> None:
        """Removes the folder of a worker that is dead, and ends its warden."""
        if started.uid is None:
            folders.remove(started.scratch)
        elif not started.signal(REMOVE):
            # its processes are dead; a warden that they stopped would never end
            self._sweep(started.uid, lambda: os.kill(-1, signal.SIGKILL))
            self._sweep(started.uid, lambda: users.clear(started.scratch))
        if started.commands is not None:
            warden = self.wardens.pop(started.commands)
            started.close()
            os.waitpid(warden, 0)

    def end(self) -> None:
        """Ends every worker that is left, and what forks them."""
        for pid in list(self.started):
            self.remove(pid)
        self.nurseries.close()


def _serve_user(name: str, commands: int, answers: int) -> None:
    """The warden's work: one letter in, the same letter out when it is done."""
    scratch = tempfile.mkdtemp(prefix=f"repro-{name}-")
    os.write(answers, scratch.encode())
    while command := os.read(commands, 1):
        if command == REMOVE:
            users.clear(scratch)
            os.write(answers, command)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, SIGNALS[command])
        os.write(answers, command)


class RemoteLauncher:
    """The judge's end of a launcher in its parent process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def _ask(self, message: dict[str, Any], fds: list[int] | None = None) -> tuple[dict[str, Any], list[int]]:
        try:
            with self._lock:
                socket.send_fds(self.connection, [json.dumps(message).encode()], fds or [])
                data, received, _, _ = socket.recv_fds(self.connection, MESSAGE_BYTES, 8)
        except OSError as error:
            raise JudgeError("the launcher of workers is gone", str(error)) from error
        if not data:
            raise JudgeError("the launcher of workers is gone")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise JudgeError("the launcher of workers failed", answer["error"])
        return answer, list(received)

    def start(self, name: str, device: str, fds: list[int], log: int, serves: str = "judge") -> Started:
        message = {"op": "start", "name": name, "device": device, "serves": serves}
        answer, received = self._ask(message, [log, *fds])
        return Started(answer["pid"], answer["scratch"], answer["uid"], answer["fds"], *received)

    def nurse(self, device: str, *, compiles: bool = False) -> None:
        self._ask({"op": "nurse", "device": device, "compiles": compiles})

    def rest(self, command: bytes) -> None:
        self._ask({"op": "rest", "command": command.decode()})

    def poll(self, pid: int) -> int | None:
        code: int | None = self._ask({"op": "poll", "pid": pid})[0]["code"]
        return code

    def kill(self, pid: int) -> None:
        self._ask({"op": "kill", "pid": pid})

    def remove(self, pid: int) -> None:
        self._ask({"op": "remove", "pid": pid})

    def end(self) -> None:
        """Nothing: the launcher ends its workers when its judge ends."""


def _answer(launcher: Launcher, message: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    op = message["op"]
    if op == "start":
        log, *rest = fds
        started = launcher.start(message["name"], message["device"], rest, log, message["serves"])
        pipes = [fd for fd in (started.commands, started.answers) if fd is not None]
        return {"pid": started.pid, "scratch": started.scratch, "uid": started.uid, "fds": started.fds}, pipes
    if op == "nurse":
        launcher.nurse(message["device"], compiles=message["compiles"])
        return {}, []
    if op == "rest":
        launcher.rest(message["command"].encode())
        return {}, []
    if op == "poll":
        return {"code": launcher.poll(message["pid"])}, []
    getattr(launcher, {"kill": "kill", "remove": "remove"}[op])(message["pid"])
    return {}, []


def _launch(connection: socket.socket, judge: int, launcher: Launcher) -> int:
    """Serves a judge until it ends; returns its exit code."""
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 64)
        except OSError:
            break
        if not data:
            break
        try:
            answer, pipes = _answer(launcher, json.loads(data), list(fds))
        except FAILURES as error:
            answer, pipes = {"error": f"{type(error).__name__}: {error}"}, []
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [json.dumps(answer).encode()], pipes)
    launcher.end()
    _, status = os.waitpid(judge, 0)
    return os.waitstatus_to_exitcode(status)


_current: Launcher | RemoteLauncher | None = None
_apart = False


def current() -> Launcher | RemoteLauncher:
    """The launcher of this process: its parent where `divide` was called, else itself."""
    global _current
    if _current is None:
        _current = Launcher()
        atexit.register(_end, _current, os.getpid())
    return _current


def _end(launcher: Launcher, pid: int) -> None:
    """At the end of the process that made it, and not of a fork of that."""
    if os.getpid() == pid:
        launcher.end()


def apart() -> bool:
    """Whether the launcher of this process gives every worker a user of its own."""
    return _apart


def divide() -> None:
    """Makes this process the launcher and returns in a child that is the judge. Call it before torch is imported.

    The launcher ends with the judge's exit code. A judge that ends takes its workers with it, and so does a launcher.
    """
    global _current, _apart
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    users_of_their_own = users.may_change()
    judge_uid = settings.CONTAINER_UID if users_of_their_own and settings.in_container() else None
    parent = os.getpid()
    sys.stdout.flush()
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
    given = users.free(judge_uid, contained=settings.in_container())
    code = _launch(ours, pid, Launcher(given if users_of_their_own else None, pid))
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(1)
    os._exit(code if code >= 0 else 128 - code)
