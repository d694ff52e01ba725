"""Checks of the Docker engine, its image and its access to the GPU."""

from __future__ import annotations

from repro import config
from repro.doctor.finding import Finding, Setting, fail, ok, skip, warn

_START = "Start Docker, or name its address in DOCKER_HOST; --engine local needs none."
_TOOLKIT = "Install the NVIDIA Container Toolkit and run `nvidia-ctk runtime configure`, or use --engine local."


def engine(setting: Setting) -> Finding:
    """Check that an engine answers; without one jobs run as processes, which are less isolated."""
    if setting.wanted == "local" or config.in_container():
        return skip("--engine local" if setting.wanted == "local" else "this is a container")
    client, why = setting.client
    if client is None:
        return fail(why, _START) if setting.wanted == "docker" or not setting.torch else warn(why, _START)
    version = client.version()
    return ok(f"Docker {version.get('Version')}, API {version.get('ApiVersion')}")


def image(setting: Setting) -> Finding:
    """Check that the image exists and holds this checkout's code."""
    if setting.wanted == "local" or setting.client[0] is None:
        return skip("no engine is used")
    if setting.image is None:
        needed = setting.wanted == "docker" or not setting.torch
        return (fail if needed else warn)(f"the engine has no image {config.image()!r}", "Run `make image`.")
    from repro.engines import docker

    if stale := docker.stale(setting.image):
        return warn(stale, "Run `make image`.")
    return ok(f"{config.image()} {setting.image.id[:19]}, of this checkout's code")


def toolkit(setting: Setting) -> Finding:
    """Check that the engine can give a GPU to a container."""
    if setting.engine != "docker" or setting.client[0] is None:
        return skip("no containers are used")
    remote = config.docker_host().startswith(("ssh://", "tcp://"))
    if setting.device == "cpu" or (setting.no_gpu and setting.device == "auto" and not remote):
        return skip(setting.no_gpu or "no GPU here")
    info = setting.client[0].info()
    if "nvidia" not in (info.get("Runtimes") or {}) and not info.get("CDISpecDirs"):
        return fail("the engine has neither a runtime called nvidia nor CDI", _TOOLKIT)
    from repro.engines import docker

    return ok(
        docker.toolkit_version() or "the engine has a runtime called nvidia or CDI; nvidia-ctk is not on this machine"
    )
