"""The engines that run jobs on this machine, by name."""

from __future__ import annotations

from collections.abc import Callable

from repro.engines.base import Engine
from repro.errors import PrerequisiteError


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


#: Makes an engine, of `gpus` and `device`. Raises PrerequisiteError if the engine cannot run here.
FACTORIES: dict[str, Callable[..., Engine]] = {"docker": _docker, "local": _local}
