"""Engines by name. `choose` returns the one that a command line names; a further engine is one more entry."""

from __future__ import annotations

from collections import Counter

from repro import config
from repro.engines import machine
from repro.engines.base import Engine, Progress
from repro.errors import PrerequisiteError, UsageError
from repro.system import importing


def _ray(*, gpus: str, device: str, address: str, say: Progress) -> Engine:
    remedy = "Run `make setup ENGINE=ray`, or `pip install -r requirements/ray.txt` here and on every node."
    importing.require("ray", "no Ray here", remedy)
    from repro.engines.ray import RayEngine

    return RayEngine(gpus=gpus, device=device, address=address, say=say)


FACTORIES = machine.FACTORIES | {"ray": _ray}


def names() -> tuple[str, ...]:
    """Return what `--engine` accepts."""
    return ("auto", *FACTORIES)


def named(text: str) -> str:
    """Return the name of an engine; that of `ray` may have an address. Raises UsageError for another text."""
    name, colon, _ = text.partition(":")
    if name not in names() or (colon and name != "ray"):
        raise UsageError(f"no engine {text!r}", f"there are {', '.join(names())}; ray alone has an address")
    return text


def choose(name: str, *, gpus: str, device: str, say: Progress) -> Engine:
    """Return the engine called `name`; `auto` takes docker if an engine answers and has the image, else local.

    name: `ray` may be followed by the address of its cluster, `ray:HOST:PORT` or `ray:local`. gpus: all, none, or
    indices or UUIDs separated by commas. device: auto, cuda or cpu. say: prints a notice. Raises UsageError for an
    unknown name, PrerequisiteError if the engine cannot run here.
    """
    name, _, address = named(name).partition(":")
    if name == "ray":
        return _ray(gpus=gpus, device=device, address=address or "auto", say=say)
    try:
        engine = FACTORIES["docker" if name == "auto" else name](gpus=gpus, device=device)
    except PrerequisiteError as error:
        if name != "auto":
            raise
        if not config.in_container():
            say(f"running without containers: {error}")
        return FACTORIES["local"](gpus=gpus, device=device)
    if engine.notice:
        say(f"{engine.notice}, and judges by its own: run `make image`, or use --engine local")
    return engine


def require_alike(engine: Engine, rest: str) -> None:
    """Raise PrerequisiteError if an engine's GPUs, whose times would be compared, are of different kinds.

    rest: of the remedy, which begins with the choice of one kind.
    """
    kinds = Counter(filter(None, engine.capacity().gpus.values()))
    if len(kinds) > 1:
        counts = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
        raise PrerequisiteError("the GPUs are of different kinds", counts, f"Choose one kind with --gpus{rest}")
