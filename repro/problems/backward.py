"""Problems whose call is forward and backward: it returns the output, and the gradients of inputs and parameters.

A text is added to the file of a problem, and to that of a solution, whose own autograd functions or torch's compute the
gradients. Each gradient is an output, with a limit of its own. The judge knows nothing more of it.
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from repro.errors import UsageError
from repro.problems.catalogue import Problem

_TEMPLATES = Path(__file__).parent / "templates"


def problem(forward: Problem) -> Problem:
    """Return the problem whose Model also takes the gradient of its one output."""
    name = f"{forward.id}_backward"
    text = forward.source + (_TEMPLATES / "gradients.txt").read_bytes() + _added("Model")
    return Problem(name, name, Path(f"{name}.py"), forward.dtype, forward.size, text=text)


def solution(text: bytes, entry: str) -> bytes:
    """Return a solution's text with what calls its backward. Raises UsageError for a function."""
    if entry != "ModelNew":
        raise UsageError(f"{entry} has no gradients", "only a module has", "Name it ModelNew, a torch.nn.Module.")
    return text + _added(entry)


def _added(model: str) -> bytes:
    return Template((_TEMPLATES / "backward.txt").read_text()).substitute(model=model).encode()
