"""Engines: where jobs run. Call `choose`; only this folder's docker modules import the docker SDK."""

from repro.engines.registry import choose, named, names, require_alike

__all__ = ["choose", "named", "names", "require_alike"]
