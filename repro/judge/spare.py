"""Processes of workers, and those that start ahead: they import torch while the judge does, and wait.

What starts ahead is confined as every worker is before it imports anything, holds no solution, no buffer and no CUDA
context, and gets all of that only when it is taken. This module needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from repro.errors import JudgeError
from repro.judge import launch
from repro.judge.protocol import Channel


class Process:
    """A worker's process as the launcher started it, with the judge's ends of its pipes and what it prints.

    shared: descriptors that it inherits beside its pipes.
    """

    def __init__(self, name: str, device: str, shared: list[int] | None = None) -> None:
        self.launcher = launch.current()
        self.log = os.memfd_create("repro-log")
        to_worker, from_judge = os.pipe()
        to_judge, from_worker = os.pipe()
        self.channel = Channel(to_judge, from_judge)
        try:
            self.started = self.launcher.start(name, device, [to_worker, from_worker, *(shared or [])], self.log)
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


def wanted(device: str, solutions: int, options: dict[str, Any]) -> int:
    """How many workers an evaluation will take, by a cell's options: each solution's, and where anything is timed the
    baselines', max_autotune's and the control's. 0 where they share descriptors or are no processes."""
    if device != "cuda" or options.get("trust", "audited") != "audited":
        return 0
    timed = 1 + ("max_autotune" in options.get("modes", ())) + ("control" in options.get("passes", ()))
    return solutions + (timed if options.get("timing", True) else 0)


_lock = threading.Lock()
_ready: dict[str, list[Process]] = {}


def prepare(count: int, device: str) -> None:
    """Starts so many processes for workers of a device that share no descriptor with the judge (a GPU's do not)."""
    for _ in range(count):
        process = Process("worker", device)
        with _lock:
            _ready.setdefault(device, []).append(process)


def take(device: str) -> Process | None:
    """One that was started ahead, or None. Nobody else gets it."""
    with _lock:
        waiting = _ready.get(device)
        return waiting.pop(0) if waiting else None


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
