"""Where an output is wrong, and what its author's program said: what an author needs to find a bug."""

from __future__ import annotations

from repro.records.base import Number, Record


class Example(Record):
    """One wrong element, and how its input case is made again. Only of trust `dev`."""

    expected: Number
    """Of the fp64 reference."""
    got: Number
    """Of the solution."""
    seed: int
    """Seed of the inputs."""
    stress: str | float | None = None
    """How the inputs differ from the published ones."""
    perturbed: bool = False
    """Whether the weights are the perturbed ones."""


class Where(Record):
    """Where an output is wrong, in the simplest input case that fails."""

    trial: str = ""
    """Kind of that input case."""
    failed: int = 0
    """Kinds of input cases that fail."""
    trials: int = 0
    """Kinds of input cases that were run."""
    output: int = 0
    """Place of the output among several."""
    shape: list[int] = []
    """Its shape."""
    elements: int = 0
    """Its elements; 0 where none were looked at."""
    wrong: int = 0
    """Elements that are far from the reference."""
    first: list[int] = []
    """Index of the first of them."""
    last: list[int] = []
    """Index of the last of them."""
    norm: Number = 0.0
    """Euclidean norm of the output's finite elements."""
    expected_norm: Number = 0.0
    """The same of the reference."""
    patterns: list[str] = []
    """What the wrong elements have in common."""
    example: Example | None = None
    """The first wrong element; of trust `dev`."""
    trace: str = ""
    """The frames of an error within the solution's file, and the error."""
    printed: str = ""
    """The end of what the solution printed."""
