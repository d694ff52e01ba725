"""Importing what makes hundreds of thousands of objects that stay until the process ends, as torch does; one file."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from repro.errors import PrerequisiteError


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


def module_of(file: Path, name: str = "solution") -> ModuleType:
    """Import a file as the module `name`, in place of an earlier one. Raises whatever it raises."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def require(package: str, what: str, remedy: str) -> None:
    """Raise PrerequisiteError if a package is not installed. what: lacks it."""
    if importlib.util.find_spec(package) is None:
        raise PrerequisiteError(what, f"the package {package} is not installed", remedy)
