"""repro: re-run, judge and publish GPU-kernel results. `docs/api.md` describes what `import repro` gives."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repro.face import Bundle, Problem, Session, compare, evaluate, problem, search, suite
    from repro.records.options import Options
    from repro.records.verdict import Verdict

__version__ = "0.1.0"
__all__ = [
    "Bundle", "Options", "Problem", "Session", "Verdict", "__version__", "compare", "evaluate", "problem", "search",
    "suite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name of the face when it is first used: most modules of the project need the version alone."""
    if name not in __all__:
        raise AttributeError(f"module 'repro' has no attribute {name!r}")
    return getattr(importlib.import_module("repro.face"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
