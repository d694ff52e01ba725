"""Worker processes, and the pool of those started ahead: they get ready while the judge does other work, and wait.

There are two kinds. The plain kind has Triton's bridge to the driver compiled. The kind for the torch baselines also
imports torch.compile and starts its compilation processes, as a first compilation would.

A process in the pool is confined like every worker. It holds no solution, buffer or CUDA context until it is taken.
This module needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from repro.errors import JudgeError
from repro.judge.processes import launcher
from repro.judge.processes.forkserver import WORKER
from repro.judge.processes.wire import Channel

if TYPE_CHECKING:  # the launcher needs no pydantic
    from repro.records.options import Options

# The kinds of a worker; COMPILES runs the torch baselines.
PLAIN, COMPILES = "plain", "compiles"


class Process:
    """A worker's process as the launcher started it, with the judge's ends of its pipes and its log.

    shared: descriptors that it inherits beside its pipes. serves, own_user: as for `Launcher.start`.
    """

    def __init__(
        self, name: str, device: str, shared: list[int] | None = None, kind: str = PLAIN, *, serves: str = WORKER,
        own_user: bool = True,
    ) -> None:  # fmt: skip
        self.launcher = launcher.current()
        self.log = os.memfd_create("repro-log")
        to_worker, from_judge = os.pipe()
        to_judge, from_worker = os.pipe()
        self.channel = Channel(to_judge, from_judge)
        try:
            fds = [to_worker, from_worker, *(shared or [])]
            self.started = self.launcher.start(
                name, device, fds, self.log, serves=serves, compiles=kind == COMPILES, own_user=own_user
            )
        except BaseException:
            self.channel.close()
            os.close(self.log)
            raise
        finally:
            os.close(to_worker)
            os.close(from_worker)

    def doom(self) -> None:
        """Kill it without waiting: several die side by side, and `close` then finds them dead."""
        with contextlib.suppress(OSError):
            self.started.signal(launcher.KILL)

    def close(self) -> None:
        """End it with every process that it started, and remove its scratch folder."""
        self.launcher.remove(self.started.pid)
        self.started.close()
        self.channel.close()
        os.close(self.log)


def wanted(device: str, dtype: str, solutions: int, options: Options) -> Counter[str]:
    """Return how many workers of each kind an evaluation with these options of a job takes.

    Each solution takes one. If anything is timed, the baselines, max_autotune and the control take more; max_autotune
    takes two for float32, at fp32 and tf32. Empty where workers share descriptors or are no processes.
    """
    counts: Counter[str] = Counter()
    if device == "cuda" and options.trust == "audited":
        counts[PLAIN] = solutions
        if options.timing:
            counts[COMPILES if len(options.modes) > 1 else PLAIN] += 1
            counts[COMPILES] += ("max_autotune" in options.modes) * (2 if dtype == "float32" else 1)
            counts[PLAIN] += "control" in options.passes
    return +counts


_changed = threading.Condition()
_ready: dict[tuple[str, str], list[Process]] = {}
_due: Counter[tuple[str, str]] = Counter()  # those that `prepare` is about to start
_paused: list[Process] = []


def prepare(counts: Counter[str], device: str) -> None:
    """Start processes until the pool holds as many of each kind as wanted.

    For devices whose workers share no descriptor with the judge, as on a GPU. Another thread may take them meanwhile.
    """
    held = {kind: len(_ready.get((device, kind), [])) for kind in counts}
    left = [(device, kind) for kind, count in counts.items() for _ in range(count - held[kind])]
    with _changed:
        _due.update(left)
    try:
        while left:
            process = Process("worker", device, kind=left[0][1])
            with _changed:
                _ready.setdefault(left[0], []).append(process)
                _due[left.pop(0)] -= 1
                _changed.notify_all()
    finally:
        with _changed:
            _due.subtract(left)
            _changed.notify_all()


def take(device: str, kind: str = PLAIN) -> Process | None:
    """Return a living process from the pool and remove it from there, or None. Wait for one that is about to start."""
    while True:
        with _changed:
            _changed.wait_for(lambda: _ready.get((device, kind)) or not _due[device, kind])
            waiting = _ready.get((device, kind))
            process = waiting.pop(0) if waiting else None
        if process is None:
            return None
        if process.launcher.poll(process.started.pid) is None:
            if process in _paused:
                _paused.remove(process)
                process.started.signal(launcher.GO)
            return process
        process.close()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Stop the pool's processes while timing runs: nothing is timed beside them."""
    with _changed:
        _changed.wait_for(lambda: not any(_due.values()))
        _paused[:] = [process for waiting in _ready.values() for process in waiting]
    for process in _paused:
        process.started.signal(launcher.STOP)
    try:
        yield
    finally:
        for process in _paused:
            process.started.signal(launcher.GO)
        _paused.clear()


def close() -> None:
    """End the processes that were not taken."""
    with _changed:
        left = [process for waiting in _ready.values() for process in waiting]
        _ready.clear()
    for process in left:
        process.doom()
    for process in left:
        with contextlib.suppress(JudgeError):  # if the launcher is gone, so are they
            process.close()
