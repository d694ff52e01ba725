"""The result of a check, and the facts that several checks need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from repro.errors import PrerequisiteError
from repro.fingerprint import gpu

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"


@dataclass(frozen=True)
class Finding:
    """status: ok, warn, fail or skip. seen: what was found, or why the check was skipped. remedy: what to do."""

    status: str
    seen: str
    remedy: str = ""


ok, warn, fail, skip = (partial(Finding, status) for status in (OK, WARN, FAIL, SKIP))


@dataclass
class Setting:
    """What the user wants to run, and facts of this machine, each determined once.

    wanted: engine auto, docker or local. device: auto, cuda or cpu. gpus: as `--gpus`. results: the folder of bundles.
    """

    wanted: str = "auto"
    device: str = "auto"
    gpus: str = "all"
    results: Path = field(default_factory=lambda: Path("results"))

    @cached_property
    def client(self) -> tuple[Any, str]:
        """Return (a client of the Docker engine or None, why there is none)."""
        try:
            from repro.engines import docker

            return docker.connect(), ""
        except PrerequisiteError as error:
            return None, f"{error.what}: {error.why}" if error.why else error.what
        except ImportError:
            return None, "the docker package is not installed here"

    @cached_property
    def image(self) -> Any:
        """Return the image that jobs would run in, or None."""
        client, _ = self.client
        if client is None:
            return None
        from repro.engines import docker

        return docker.find_image(client)

    @cached_property
    def torch(self) -> bool:
        """Return whether torch is installed here, which processes without a container need."""
        return find_spec("torch") is not None

    @cached_property
    def engine(self) -> str:
        """Return the engine that `--engine` selects.

        `auto` is docker if an engine answers and has the image or torch is missing here, else local.
        """
        if self.wanted != "auto":
            return self.wanted
        client, _ = self.client
        return "docker" if client is not None and (self.image is not None or not self.torch) else "local"

    @cached_property
    def silent(self) -> str:
        """Return why NVML does not answer here, or the empty string."""
        return gpu.start()

    @cached_property
    def handles(self) -> list[Any]:
        """Return the GPUs of this machine that a run could use; empty if there is none."""
        from repro.engines import resources

        if self.silent or self.device == "cpu":
            return []
        handles = [gpu.device(uuid)[0] for uuid in resources.select(self.gpus)]
        return [handle for handle in handles if handle is not None]

    @property
    def on_cpu(self) -> str:
        """Return why checks of the driver are skipped, or the empty string."""
        return "device cpu" if self.device == "cpu" else ""

    @property
    def no_gpu(self) -> str:
        """Return why checks of a GPU are skipped, or the empty string."""
        return self.on_cpu or ("" if self.handles else "no GPU here")

    @property
    def in_image(self) -> str:
        """Return why checks of this Python's surroundings are skipped, or the empty string."""
        return "the image has its own" if self.engine == "docker" else ""
