"""Where cells run. `choose` is the only door; only `engines/docker.py` knows the docker SDK."""

from __future__ import annotations

from collections.abc import Callable

from repro.engines.base import Engine
from repro.errors import PrerequisiteError, UsageError

NAMES = ("auto", "docker", "local")


def choose(name: str, *, gpus: str, device: str, say: Callable[[str], None]) -> Engine:
    """The engine called `name`; `auto` takes docker where an engine answers and has the image, else local.

    gpus: all, none, or indices or UUIDs separated by commas. device: auto, cuda or cpu.
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
                    raise PrerequisiteError("no docker engine", why, "Run `make setup`.") from error
                raise
            say(f"ENGINE=auto: running without containers, because {error}")
    return local.LocalEngine(gpus=gpus, device=device)
