"""Engines: where jobs run. Call `choose`; only this folder's docker modules import the docker SDK."""

from __future__ import annotations

from collections.abc import Callable

from repro import config
from repro.engines.base import Engine
from repro.errors import PrerequisiteError, UsageError

NAMES = ("auto", "docker", "local")


def choose(name: str, *, gpus: str, device: str, say: Callable[[str], None]) -> Engine:
    """Return the engine called `name`; `auto` takes docker if an engine answers and has the image, else local.

    gpus: all, none, or indices or UUIDs separated by commas. device: auto, cuda or cpu. say: prints a notice. Raises
    UsageError for an unknown name, PrerequisiteError if the engine cannot run here.
    """
    from repro.engines import local

    if name not in NAMES:
        raise UsageError(f"no engine {name!r}", f"there are {', '.join(NAMES)}")
    if name in ("auto", "docker"):
        try:
            from repro.engines import docker

            return docker.DockerEngine(gpus=gpus, device=device)
        except (PrerequisiteError, ImportError) as error:
            if name == "docker":
                if isinstance(error, ImportError):
                    why = "the docker package is not installed here"
                    raise PrerequisiteError(
                        "no docker engine", why, "Run `make setup` or `pip install .` in a checkout."
                    ) from error
                raise
            if not config.in_container():
                say(f"running without containers: {error}")
    return local.LocalEngine(gpus=gpus, device=device)
