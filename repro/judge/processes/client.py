"""The judge's client of a worker: starts it, asks it with a time limit, stops and resumes it, ends it."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch

from repro.errors import SolutionDied, SolutionRejected, SolutionTimeout, of_worker, printable_lines
from repro.judge.gpu.shared_memory import SharedBuffer
from repro.judge.processes import launcher, pool
from repro.judge.processes.wire import TUNES, ChannelClosed, ChannelGarbage, ChannelTimeout, Json, printed
from repro.system import signals
from repro.system.procfs import at_rest, dead, descendants, forks, moving, of_user, of_user_but, worked_ns

# Reason codes that a worker may give itself; any other counts as `exception`. One says that there is no GPU, and is
# believed where there is none.
_NEEDS_CUDA = "needs_cuda"
_CODES = SolutionRejected.RULES | {
    "syntax_error", "import_error", "missing", "no_entry", "not_a_module", "state_dict_mismatch", "constructor",
    "out_of_memory", "exception", "race", _NEEDS_CUDA,
}  # fmt: skip
_START_TIMEOUT_S = 120.0
_ENDING_TIMEOUT_S = 10.0
# Time in which stopped processes must come to rest; the inputs do not exist yet.
_STILL_TIMEOUT_S = 5.0
# Time between two readings of CPU times that must be equal.
_LAST_MOMENT_S = 0.001


class GpuUse:
    """Who may use the GPU: one benchmark of torch.compile's tuner, or one trial. Benchmarks go first.

    A tuner that benchmarks beside other work chooses slow kernels: on one H100 max_autotune of 36 took 7.1 ms so, and
    3.8 ms otherwise. Everything compared with that baseline then looks faster than it is.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tuners, self._used = 0, False

    @contextlib.contextmanager
    def tuning(self) -> Iterator[None]:
        """Hold the GPU for one benchmark."""
        with self._changed:
            self._tuners += 1
            self._changed.wait_for(lambda: not self._used)
            self._tuners, self._used = self._tuners - 1, True
        with self._held():
            yield

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Hold the GPU for one trial, when no benchmark waits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used and not self._tuners)
            self._used = True
        with self._held():
            yield

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._changed:
                self._used = False
                self._changed.notify_all()


class WorkerProcess:
    """One worker: a fresh interpreter with its own session, scratch folder and allow-listed environment.

    It has its own user if the launcher can assign one. gpu: of a trusted worker that compiles, whose benchmarks then
    have the GPU alone.
    """

    def __init__(self, name: str, device: torch.device, buffers: dict[str, SharedBuffer], *, trusted: bool,
                 kind: str = pool.PLAIN, gpu: GpuUse | None = None) -> None:  # fmt: skip
        self.name, self.device, self.trusted, self.buffers, self.gpu = name, device, trusted, buffers, gpu
        shared = {key: buffer.fd for key, buffer in buffers.items() if buffer.fd is not None}
        ahead = None if shared else pool.take(str(device), kind)
        self.process = ahead or pool.Process(
            re.sub(r"[^\w-]", "-", name)[:40], str(device), list(shared.values()), kind
        )
        self.launcher, self.started, self.channel = self.process.launcher, self.process.started, self.process.channel
        self.numbers = dict(zip(shared, self.started.fds[2:], strict=True))
        self.stopped = self.ended = False
        self.unrest = ""  # why `rest` or `rested` was False the last time
        self.resting: dict[int, int] | None = None  # CPU time in ns by process id, once all processes are at rest
        self.listed, self.forks = list[int](), 0  # the processes, and how many this machine had started by then
        self.hello: Json = {}
        self.strangers = set[tuple[int, int]]()
        ours = {self.started.pid, *descendants(self.started.pid)}
        self.warden = set() if self.started.uid is None else {*of_user(self.started.uid)} - ours  # no solution has run
        self.due: deque[tuple[str, int]] = deque()  # requests without an answer yet

    @property
    def scratch(self) -> Path:
        """The worker's own folder."""
        return Path(self.started.scratch)

    def start(self) -> Json:
        """Wait for the worker and attach the buffers, once. Return the worker's description of its software."""
        if not self.hello:
            self.hello = self.ask({"op": "hello"}, _START_TIMEOUT_S)
            tickets = {name: buffer.ticket(self.numbers.get(name)) for name, buffer in self.buffers.items()}
            self.ask({"op": "attach", "buffers": tickets}, _START_TIMEOUT_S)
        return self.hello

    def ask(self, message: Mapping[str, object], timeout_s: float) -> Json:
        """Send one request and return its answer.

        The answer must carry the request's number and be the only message on the wire. Raises SolutionTimeout (the
        worker is killed), SolutionDied with its exit reason, SolutionError with the solution's exception, and
        SolutionRejected if the answer is invalid.
        """
        self.wake()
        self.post(message, timeout_s)
        return self.collect(timeout_s)

    def post(self, message: Mapping[str, object], timeout_s: float) -> None:
        """Send one request, whose answer `collect` returns. Raises as `ask` does.

        A stopped worker reads it when it resumes: a short request fits into the pipe's buffer.
        """
        op = str(message["op"])
        with self._conversing(op, timeout_s):
            if not self.due and self.channel.waiting():
                raise ChannelGarbage("an answer without a request")
            number = secrets.randbits(53)
            self.channel.send({**message, "n": number}, timeout_s)
            self.due.append((op, number))

    def collect(self, timeout_s: float) -> Json:
        """Return the answer to the oldest open request. Raises as `ask` does."""
        op, number = self.due[0]
        with self._conversing(op, timeout_s):
            answer = self._answer(timeout_s)
            self.due.popleft()
            if answer.pop("n", None) != number:
                raise ChannelGarbage("an answer to another request")
        if "error" in answer:
            known, code = _CODES - {_NEEDS_CUDA} if self.device.type == "cuda" else _CODES, str(answer.get("code"))
            code = code if code in known else "exception"
            raise of_worker(code, str(answer["error"])).traced(answer.get("trace"))
        return answer

    def _answer(self, timeout_s: float) -> Json:
        """Return the next answer. Before it a worker that compiles may ask for benchmarks, one after the other."""
        deadline = time.monotonic() + timeout_s
        answer = self.channel.receive(timeout_s)
        while self.gpu is not None and TUNES in answer:
            with self.gpu.tuning():
                self.channel.send({TUNES: True}, timeout_s)
                self.channel.receive(deadline - time.monotonic())
            answer = self.channel.receive(deadline - time.monotonic())
        return answer

    def collected(self, patience_s: float, timeout_s: float) -> Json | None:
        """Return `collect` if an answer begins to arrive within patience_s, else None; it can still be collected."""
        return self.collect(timeout_s) if self.channel.comes(patience_s) else None

    @contextlib.contextmanager
    def _conversing(self, op: str, timeout_s: float) -> Iterator[None]:
        """Turn errors of the channel into errors of the solution."""
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
        deadline = time.monotonic() + _ENDING_TIMEOUT_S
        while (code := self.launcher.poll(self.started.pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if code is None:
            self.kill()
            return SolutionDied("worker_closed_pipe", f"during {op}")
        tail = " | ".join(self.printed().splitlines()[-3:])
        if code < 0:
            name = signals.name(-code)
            reason = {"SIGSEGV": "segfault", "SIGKILL": "killed"}.get(name, "worker_died")
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return SolutionDied(reason, f"the worker ended by signal {name}{hint} during {op}. {tail}")
        return SolutionDied("worker_exited", f"the worker ended with code {code} during {op}. {tail}")

    def printed(self) -> str:
        """Return the end of what the worker printed, for messages only."""
        return printable_lines(printed(self.process.log))

    def stop(self) -> None:
        """Stop every process of this worker. Raises SolutionRejected if its warden was tampered with."""
        if not self.stopped and not self.ended:
            self._signal(launcher.STOP)
            self.stopped, self.resting = True, None

    def _processes(self) -> list[int] | None:
        """Return the worker's visible processes, by user or by descent; None if one cannot be read now.

        Searching /proc takes milliseconds. The list stays valid until any process on the machine forks, and processes
        of other users are remembered.
        """
        count = forks()
        if count and count == self.forks:
            return self.listed
        uid = self.started.uid
        pids = descendants(self.started.pid) if uid is None else of_user_but(uid, self.strangers)
        if pids is None:
            return None
        self.listed, self.forks = [pid for pid in pids if pid not in self.warden], count
        return self.listed

    def rest(self) -> bool:
        """Wait until every thread of the stopped worker is at rest. Return whether it came to rest in time.

        A timer can resume a process without a signal, and a system call runs on until it ends. Baselines wait as long
        as solutions: a longer rest makes the next resume slower, and the judge's clock compares both.
        """
        deadline, worked = time.monotonic() + _STILL_TIMEOUT_S, dict[int, int]()
        while self.resting is None and self.stopped and time.monotonic() < deadline:
            worked = self._look(worked)
        if self.resting is not None or not self.stopped:
            return True
        threads = [thread for pid in self._processes() or [] for thread in moving(pid)]
        self.unrest = "; ".join(threads[:3]) or "its processes changed all the time"
        return False

    def _look(self, before: dict[int, int]) -> dict[int, int]:
        """Look at all processes once. They rest if all are stopped with the CPU times of the last look, `before`.

        Return their CPU times, or `before` if one is not stopped.
        """
        pids = self._processes()
        if self.started.uid is None and {*(pids or [])} - {*self.started.stopped}:
            self._signal(launcher.STOP)  # forked before its parent stopped; a whole user is signalled at once
        if pids is None or not all(map(at_rest, pids)):
            time.sleep(0.0003)
            return before
        worked = {pid: worked_ns(pid) for pid in pids if not dead(pid)}
        if worked == before:  # a thread in state "stopped" may still run for a moment
            self.resting = worked
        else:
            time.sleep(_LAST_MOMENT_S)
        return worked

    def rested(self) -> bool:
        """Return whether no process of the worker has run, ended or appeared since `rest`."""
        if self.resting is None:
            return True
        for pid, ns in self.resting.items():
            if (now := worked_ns(pid)) != ns:
                threads = moving(pid)[:2] or ["its threads are stopped"]
                used = f"a process used {(now - ns) / 1e6:.3f} ms of CPU time"
                self.unrest = "; ".join([used, *threads]) if now else "a process ended"
                return False
        return not self._appeared(self.resting)

    def _appeared(self, known: Collection[int]) -> bool:
        """Return whether there are other processes than the known ones, or they cannot be listed."""
        deadline = time.monotonic() + _STILL_TIMEOUT_S
        while (pids := self._processes()) is None and time.monotonic() < deadline:
            time.sleep(0.001)
        if pids is None:
            self.unrest = "its processes could not be listed"
            return True
        new = [pid for pid in pids if pid not in known and not dead(pid)]
        if new:
            self.unrest = f"{len(new)} processes appeared"
        return bool(new)

    def wake(self) -> None:
        """Resume the worker's processes."""
        if self.stopped:
            self._signal(launcher.GO)
            self.stopped, self.resting = False, None

    def _signal(self, number: int) -> None:
        search = number == launcher.STOP and self.started.uid is None
        if not self.started.signal(number, self._processes() if search else None):
            self.kill()
            raise SolutionRejected("protocol_tampered", "the process that stops and resumes the worker has ended")

    def kill(self) -> None:
        """Kill the worker and every process that it started."""
        self.launcher.kill(self.started.pid)

    def doom(self) -> None:
        """Kill the worker without waiting for its end; `close` waits."""
        if not self.ended:
            self.process.doom()

    def close(self) -> None:
        """End the worker and remove its scratch folder."""
        if not self.ended:
            self.ended = True
            self.process.close()
