"""The judge's end of a worker: start it, ask it with a bounded wait, stop and wake it, end it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from repro import folders
from repro.errors import SolutionDied, SolutionError, SolutionRejected, SolutionTimeout
from repro.judge import launch, spare
from repro.judge.buffers import SharedBuffer
from repro.judge.procfs import at_rest, dead, descendants, forks, of_user, of_user_but, worked_ns
from repro.judge.protocol import ChannelClosed, ChannelGarbage, ChannelTimeout

START_TIMEOUT_S = 120.0
STDERR_TAIL_BYTES = 4000
ENDING_TIMEOUT_S = 10.0
# What is stopped comes to rest within this time; there are no inputs yet.
STILL_TIMEOUT_S = 2.0
# Between two looks at whose time stands still.
LAST_MOMENT_S = 0.001


class Asked(Protocol):
    """What the judge needs of whoever runs a solution."""

    def start(self) -> dict[str, Any]: ...
    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]: ...
    def post(self, message: dict[str, Any], timeout_s: float) -> None: ...
    def collect(self, timeout_s: float) -> dict[str, Any]: ...
    def collected(self, patience_s: float, timeout_s: float) -> dict[str, Any] | None: ...
    def stop(self) -> None: ...
    def wake(self) -> None: ...
    def doom(self) -> None: ...
    def rest(self) -> bool: ...
    def rested(self) -> bool: ...
    def close(self) -> None: ...


class WorkerProcess:
    """One worker: an interpreter that saw no other, a session and a scratch folder, with an allow-listed environment,
    and where the launcher can give it one a user of its own."""

    def __init__(self, name: str, device: torch.device, buffers: dict[str, SharedBuffer], *, trusted: bool,
                 kind: str = spare.PLAIN) -> None:  # fmt: skip
        self.name, self.device, self.trusted, self.buffers = name, device, trusted, buffers
        shared = {key: buffer.fd for key, buffer in buffers.items() if buffer.fd is not None}
        ahead = None if shared else spare.take(str(device), kind)
        self.process = ahead or spare.Process(_plain(name), str(device), list(shared.values()), kind)
        self.launcher, self.started, self.channel = self.process.launcher, self.process.started, self.process.channel
        self.numbers = dict(zip(shared, self.started.fds[2:], strict=True))
        self.stopped = self.ended = False
        self.resting: dict[int, int] | None = None  # CPU time of what is at rest, by process
        self.found, self.forks = list[int](), 0
        self.strangers = set[tuple[int, int]]()
        ours = {self.started.pid, *descendants(self.started.pid)}
        self.warden = set() if self.started.uid is None else {*of_user(self.started.uid)} - ours  # no solution ran yet
        self.due: deque[tuple[str, int]] = deque()  # what was asked and has no answer yet

    @property
    def scratch(self) -> Path:
        """The worker's own folder."""
        return Path(self.started.scratch)

    def start(self) -> dict[str, Any]:
        """Waits for the worker and opens the buffers in it; returns what it says of its software."""
        hello = self.ask({"op": "hello"}, START_TIMEOUT_S)
        tickets = {name: buffer.ticket(self.numbers.get(name)) for name, buffer in self.buffers.items()}
        self.ask({"op": "attach", "buffers": tickets}, START_TIMEOUT_S)
        return hello

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One request and its answer, which must carry the request's number and be the only thing on the wire.

        Raises SolutionTimeout (the worker is killed), SolutionDied with how it ended, SolutionError with the
        exception that the solution raised, SolutionRejected where the answer is not one.
        """
        self.wake()
        self.post(message, timeout_s)
        return self.collect(timeout_s)

    def post(self, message: dict[str, Any], timeout_s: float) -> None:
        """One request, whose answer is to be collected. A stopped worker finds it when it wakes: a short one fits into
        a pipe that nobody reads. Raises as `ask` does."""
        with self._conversing(message["op"], timeout_s):
            if not self.due and self.channel.waiting():
                raise ChannelGarbage("an answer to nothing")
            number = secrets.randbits(53)
            self.channel.send({**message, "n": number}, timeout_s)
            self.due.append((message["op"], number))

    def collect(self, timeout_s: float) -> dict[str, Any]:
        """The answer to the oldest request that has none. Raises as `ask` does."""
        op, number = self.due[0]
        with self._conversing(op, timeout_s):
            answer = self.channel.receive(timeout_s)
            self.due.popleft()
            if answer.pop("n", None) != number:
                raise ChannelGarbage("an answer to another request")
        if "error" in answer:
            code = str(answer.get("code", "exception"))[:40]
            kind = SolutionRejected if code in SolutionRejected.RULES else SolutionError
            raise kind(code, str(answer["error"]))
        return answer

    def collected(self, patience_s: float, timeout_s: float) -> dict[str, Any] | None:
        """The same where one begins to come within patience_s, else None, and it is still to be collected."""
        return self.collect(timeout_s) if self.channel.comes(patience_s) else None

    @contextlib.contextmanager
    def _conversing(self, op: str, timeout_s: float) -> Iterator[None]:
        """What goes wrong on the wire as the solution's fault."""
        try:
            yield
        except ChannelTimeout:
            self.kill()
            raise SolutionTimeout("timeout", f"{op} took longer than {timeout_s:.0f} s") from None
        except ChannelClosed:
            raise self._death(op) from None
        except ChannelGarbage as error:
            self.kill()
            raise SolutionRejected("protocol_tampered", str(error)) from None

    def _death(self, op: str) -> SolutionDied:
        deadline = time.monotonic() + ENDING_TIMEOUT_S
        while (code := self.launcher.poll(self.started.pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if code is None:
            self.kill()
            return SolutionDied("worker_closed_pipe", f"during {op}")
        tail = self.stderr_tail()
        if code < 0:
            names = {s.value: s.name for s in signal.Signals}  # real-time ones have no name
            name = names.get(-code, f"signal {-code}")
            reason = {"SIGSEGV": "segfault", "SIGKILL": "killed"}.get(name, "worker_died")
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return SolutionDied(reason, f"the worker ended by {name}{hint} during {op}. {tail}")
        return SolutionDied("worker_exited", f"the worker ended with code {code} during {op}. {tail}")

    def stderr_tail(self) -> str:
        """The end of what the worker printed. Nothing of it is ever taken for a result."""
        size = os.fstat(self.process.log).st_size
        data = os.pread(self.process.log, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES))
        return " | ".join(data.decode(errors="replace").strip().splitlines()[-3:])

    def stop(self) -> None:
        """Stops every process of this worker. Raises SolutionRejected where its warden was tampered with."""
        if not self.stopped and not self.ended:
            self._signal(launch.STOP)
            self.stopped, self.resting = True, None

    def _processes(self) -> list[int] | None:
        """All that the worker is, by what can be seen: of its user, or with its parent still; None where somebody
        cannot be read just now. To look through /proc takes milliseconds: what was found holds until somebody is
        forked, here or elsewhere, and who is a stranger stays one."""
        count = forks()
        if count and count == self.forks:
            return self.found
        uid = self.started.uid
        found = descendants(self.started.pid) if uid is None else of_user_but(uid, self.strangers)
        if found is None:
            return None
        self.found, self.forks = [pid for pid in found if pid not in self.warden], count
        return self.found

    def rest(self) -> bool:
        """Waits until every thread of what was stopped stands still: timers can wake a process without anybody's
        signal, and who is in a system call goes on until it ends. Whether it came to that. Who is trusted is spared
        nothing of it: what stood still for longer is slower to wake, and the judge's clock compares both."""
        deadline, before = time.monotonic() + STILL_TIMEOUT_S, dict[int, int]()
        while self.resting is None and self.stopped and time.monotonic() < deadline:
            found = self._processes()
            if self.started.uid is None and {*(found or [])} - {*self.started.stopped}:
                self._signal(launch.STOP)  # forked before its parent stopped; a user's are signalled at once
            if found is not None and all(at_rest(pid) for pid in found):
                worked = {pid: worked_ns(pid) for pid in found if not dead(pid)}
                if worked == before:  # who is called stopped may have a last moment on a processor
                    self.resting = worked
                    break
                before = worked
                time.sleep(LAST_MOMENT_S)
            else:
                time.sleep(0.0003)
        return self.resting is not None or not self.stopped

    def rested(self) -> bool:
        """Whether none of them has run since `rest`, ended, or left somebody behind."""
        if self.resting is None:
            return True
        if any(worked_ns(pid) != ns for pid, ns in self.resting.items()):
            return False
        deadline = time.monotonic() + STILL_TIMEOUT_S
        while (found := self._processes()) is None and time.monotonic() < deadline:
            time.sleep(0.001)
        return found is not None and all(pid in self.resting or dead(pid) for pid in found)

    def wake(self) -> None:
        """Lets them run again."""
        if self.stopped:
            self._signal(launch.GO)
            self.stopped, self.resting = False, None

    def _signal(self, command: bytes) -> None:
        if not self.started.signal(command):
            self.kill()
            raise SolutionRejected("protocol_tampered", "the process that stops and wakes the worker is gone")

    def kill(self) -> None:
        """Kills the worker and everything that it started."""
        self.launcher.kill(self.started.pid)

    def doom(self) -> None:
        """Has the worker killed without waiting for it: `close` does."""
        if not self.ended:
            self.process.doom()

    def close(self) -> None:
        """Ends the worker and removes its scratch folder."""
        if not self.ended:
            self.ended = True
            self.process.close()


class InProcess:
    """A solution in the judge's own process: quick, for an agent's inner loop (`--trust dev`). It protects nothing:
    no bound on time, no separation of memory."""

    def __init__(self, device: torch.device, buffers: dict[str, SharedBuffer]) -> None:
        from repro.judge import interpreter, worker

        if device.type == "cpu":
            interpreter.mend()
        self._answer: Callable[[Any, dict[str, Any]], dict[str, Any]] = worker.answer
        self._worker = worker.Worker(device, None)
        self._worker.buffers = {name: buffer.bytes for name, buffer in buffers.items()}
        self._due: deque[dict[str, Any]] = deque()

    def start(self) -> dict[str, Any]:
        """Opens nothing: the buffers are here."""
        return self._answer(self._worker, {"op": "hello"})

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One request and its answer, without a bound. Raises SolutionError."""
        answer = self._answer(self._worker, dict(message))
        if "error" in answer:
            raise SolutionError(str(answer["code"]), str(answer["error"]))
        return answer

    def post(self, message: dict[str, Any], timeout_s: float) -> None:
        """Is asked when its answer is collected."""
        self._due.append(message)

    def collect(self, timeout_s: float) -> dict[str, Any]:
        """As `ask`, for the oldest that was posted."""
        return self.ask(self._due.popleft(), timeout_s)

    def collected(self, patience_s: float, timeout_s: float) -> dict[str, Any] | None:
        """The same: nobody else could do anything meanwhile."""
        return self.collect(timeout_s)

    def stop(self) -> None:
        """Nothing can be stopped here."""

    def rest(self) -> bool:
        """Always: it is this process."""
        return True

    def rested(self) -> bool:
        """Always."""
        return True

    def wake(self) -> None:
        """Nothing was stopped."""

    def doom(self) -> None:
        """Nothing can be killed here."""

    def close(self) -> None:
        """Lets go of the solution, and of the folder that it had."""
        self._worker.drop()
        folders.remove(self._worker.scratch)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:40]
