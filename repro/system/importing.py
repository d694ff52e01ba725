"""Importing what makes hundreds of thousands of objects that stay until the process ends, as torch does; versions."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
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


def version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
