"""The engines that run jobs on this machine, by name."""

from __future__ import annotations

from typing import Protocol

from repro.engines.base import Engine
from repro.errors import PrerequisiteError


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
