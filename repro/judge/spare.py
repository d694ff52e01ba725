"""Processes of workers, and those that start ahead: they get ready while the judge does other work, and wait.

There are two kinds: one for whatever it is given, which has Triton's bridge to the driver compiled, and one for the
torch baselines, which imports torch.compile too and starts the processes that it compiles in, as its first compilation
would. What starts ahead is confined as every worker is, holds no solution, no buffer and no CUDA context, and gets all
of that only when it is taken. This module needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from repro.errors import JudgeError
from repro.judge import launch, nursery
from repro.judge.protocol import Channel

# What a process is for, as the launcher tells it: `judge`, or `baselines`, which compile.
PLAIN, COMPILES = "judge", nursery.COMPILES


class Process:
    """A worker's process as the launcher started it, with the judge's ends of its pipes and what it prints.

    shared: descriptors that it inherits beside its pipes.
    """

    def __init__(self, name: str, device: str, shared: list[int] | None = None, kind: str = PLAIN) -> None:
        self.launcher = launch.current()
        self.log = os.memfd_create("repro-log")
        to_worker, from_judge = os.pipe()
        to_judge, from_worker = os.pipe()
        self.channel = Channel(to_judge, from_judge)
        try:
            fds = [to_worker, from_worker, *(shared or [])]
            self.started = self.launcher.start(name, device, fds, self.log, kind)
        except BaseException:
            self.channel.close()
            os.close(self.log)
            raise
        finally:
            os.close(to_worker)
            os.close(from_worker)

    def doom(self) -> None:
        """Has it killed, and does not wait: several die side by side, and `close` then finds them dead."""
        with contextlib.suppress(OSError):
            self.started.signal(launch.KILL)

    def close(self) -> None:
        """Ends it with all that it started, and removes its scratch folder."""
        self.launcher.remove(self.started.pid)
        self.started.close()
        self.channel.close()
        os.close(self.log)


def wanted(device: str, dtype: str, solutions: int, options: dict[str, Any]) -> Counter[str]:
    """How many workers of each kind an evaluation will take, by a cell's options: each solution's, and where anything
    is timed the baselines', max_autotune's (for float32 two, at fp32 and tf32) and the control's. None where they share
    descriptors or are no processes."""
    found: Counter[str] = Counter()
    if device == "cuda" and options.get("trust", "audited") == "audited":
        found[PLAIN] = solutions
        if options.get("timing", True):
            modes = options.get("modes", ())
            found[COMPILES if len(modes) > 1 else PLAIN] += 1
            found[COMPILES] += ("max_autotune" in modes) * (2 if dtype == "float32" else 1)
            found[PLAIN] += "control" in options.get("passes", ())
    return +found


_lock = threading.Lock()
_ready: dict[tuple[str, str], list[Process]] = {}
_paused: list[Process] = []


def prepare(counts: Counter[str], device: str) -> None:
    """Starts processes for workers of a device that share no descriptor with the judge (a GPU's do not), as many of
    each kind as are wanted and do not wait yet."""
    for kind, count in counts.items():
        while len(_ready.get((device, kind), [])) < count:
            process = Process("worker", device, kind=kind)
            with _lock:
                _ready.setdefault((device, kind), []).append(process)


def more(count: int, device: str) -> None:
    """Starts so many beside those that wait."""
    prepare(Counter({PLAIN: len(_ready.get((device, PLAIN), [])) + count}), device)


def take(device: str, kind: str = PLAIN) -> Process | None:
    """One that was started ahead and lives, or None. Nobody else gets it."""
    while True:
        with _lock:
            waiting = _ready.get((device, kind))
            process = waiting.pop(0) if waiting else None
        if process is None:
            return None
        if process.launcher.poll(process.started.pid) is None:
            if process in _paused:
                _paused.remove(process)
                process.started.signal(launch.GO)
            return process
        process.close()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Those that wait stand still meanwhile, and what imports for them: nothing is timed beside those."""
    with _lock:
        _paused[:] = [process for waiting in _ready.values() for process in waiting]
    launch.current().rest(launch.STOP)
    for process in _paused:
        process.started.signal(launch.STOP)
    try:
        yield
    finally:
        for process in _paused:
            process.started.signal(launch.GO)
        _paused.clear()
        launch.current().rest(launch.GO)


def close() -> None:
    """Ends what nobody took."""
    with _lock:
        left = [process for waiting in _ready.values() for process in waiting]
        _ready.clear()
    for process in left:
        process.doom()
    for process in left:
        with contextlib.suppress(JudgeError):  # a launcher that is gone has taken them with it
            process.close()
