"""How the process may end: Ctrl-C and SIGTERM are delayed while something is written that must be complete."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)
# Set where Python's own ending would hang or crash, as Ray's threads do once the head of their cluster has died, or
# takes long: up to a second where torch is imported.
END_AT_ONCE = threading.Event()


def name(number: int) -> str:
    """Return the name of a signal; real-time ones have none, and keep their number."""
    return next((s.name for s in signal.Signals if s.value == number), str(number))


@contextlib.contextmanager
def held() -> Iterator[Callable[[], int]]:
    """Delay signals that end the tool until the block ends; then the first one takes effect.

    Yields a function that returns how many came. If the block fails, its error is raised instead. Ignored signals stay
    ignored. Threads other than the main one receive no signals anyway.
    """
    heard = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    handlers = {number: signal.getsignal(number) for number in ENDING}
    handlers = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: heard.append(number))
        yield lambda: len(heard)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
