"""Importing what makes hundreds of thousands of objects that stay until the process ends, as torch does."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Import without garbage collection, and keep what was imported out of every later one.

    Collections look at new objects again and again, at import, in forks and at exit: a fifth of what torch costs. In a
    fork they would also copy pages that it shares with others.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
