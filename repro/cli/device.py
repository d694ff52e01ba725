"""Where the jobs of a verb run: the engine and the size that its arguments choose."""

from __future__ import annotations

import argparse

from repro.engines import choose, require_alike
from repro.engines.base import Engine
from repro.runs.progress import Progress


def chosen(args: argparse.Namespace, progress: Progress) -> Engine:
    """The engine. Raises PrerequisiteError."""
    return choose(args.engine, gpus=args.gpus, device=args.device, say=progress.say, address=args.address)


def sized(args: argparse.Namespace, progress: Progress) -> tuple[Engine, str]:
    """The engine, and the size that its device implies. Raises PrerequisiteError."""
    engine = chosen(args, progress)
    if "mixed" in args and not (args.mixed or getattr(args, "no_timing", False)):
        neither = " --no-timing needs neither." if "no_timing" in args else ""
        require_alike(engine, f", or add --mixed: rows are then grouped by GPU.{neither}")
    size = args.size if args.size != "auto" else ("full" if engine.device == "cuda" else "smoke")
    if engine.device == "cpu" and size == "full":
        progress.say("full shapes on the CPU: one problem may take hours; --size smoke takes small ones")
    elif engine.device == "cpu" and args.device == "auto":
        progress.say("no GPU: small shapes on the CPU in Triton's interpreter; correctness is real, times are not")
    return engine, size
