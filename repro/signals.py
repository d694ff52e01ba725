"""Ctrl-C and SIGTERM wait while something is written that must be whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that end the tool are heard when the block is left, the first of them alone; where the block fails, its
    error is told instead. A thread other than the main one hears none in any case."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    handlers = {}
    try:
        for number in ENDING:
            handlers[number] = signal.signal(number, lambda number, _: heard.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
