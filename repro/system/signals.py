"""Delays Ctrl-C and SIGTERM while something is written that must be complete."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delay signals that end the tool until the block ends; then the first one takes effect.

    If the block fails, its error is raised instead. Threads other than the main one receive no signals anyway.
    """
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
