"""Engines by name. `choose` returns the one that a command line names; a further engine is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from repro import config
from repro.engines.base import Engine
from repro.errors import PrerequisiteError, UsageError


class Factory(Protocol):
    """Makes an engine. Raises PrerequisiteError if the engine cannot run here."""

    def __call__(self, *, gpus: str, device: str) -> Engine: ...


def _docker(*, gpus: str, device: str) -> Engine:
    try:
        from repro.engines.docker import DockerEngine
    except ImportError as error:
        why = "the docker package is not installed here"
        raise PrerequisiteError(
            "no docker engine", why, "Run `make setup` or `pip install .` in a checkout."
        ) from error
    return DockerEngine(gpus=gpus, device=device)


def _local(*, gpus: str, device: str) -> Engine:
    from repro.engines.local import LocalEngine

    return LocalEngine(gpus=gpus, device=device)


FACTORIES: dict[str, Factory] = {"docker": _docker, "local": _local}


def names() -> tuple[str, ...]:
    """Return what `--engine` accepts."""
    return ("auto", *FACTORIES)


def choose(name: str, *, gpus: str, device: str, say: Callable[[str], None]) -> Engine:
    """Return the engine called `name`; `auto` takes docker if an engine answers and has the image, else local.

    gpus: all, none, or indices or UUIDs separated by commas. device: auto, cuda or cpu. say: prints a notice. Raises
    UsageError for an unknown name, PrerequisiteError if the engine cannot run here.
    """
    if name not in names():
        raise UsageError(f"no engine {name!r}", f"there are {', '.join(names())}")
    if name != "auto":
        return FACTORIES[name](gpus=gpus, device=device)
    try:
        return FACTORIES["docker"](gpus=gpus, device=device)
    except PrerequisiteError as error:
        if not config.in_container():
            say(f"running without containers: {error}")
    return FACTORIES["local"](gpus=gpus, device=device)
