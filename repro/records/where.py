"""Where an output is wrong, and what its author's program said: what an author needs to find a bug."""

from __future__ import annotations

from pydantic import Field

from repro.records.base import Number, Record


class Example(Record):
    """One wrong element, and how its input case is made again. Only of trust `dev`."""

    expected: Number = Field(description="Of the fp64 reference.")
    got: Number = Field(description="Of the solution.")
    seed: int = Field(description="Seed of the inputs.")
    stress: str | float | None = Field(None, description="How the inputs differ from the published ones.")
    perturbed: bool = Field(False, description="Whether the weights are the perturbed ones.")


class Where(Record):
    """Where an output is wrong, in the simplest input case that fails."""

    trial: str = Field("", description="Kind of that input case.")
    failed: int = Field(0, description="Kinds of input cases that fail.")
    trials: int = Field(0, description="Kinds of input cases that were run.")
    output: int = Field(0, description="Place of the output among several.")
    shape: list[int] = Field(default_factory=list, description="Its shape.")
    elements: int = Field(0, description="Its elements; 0 where none were looked at.")
    wrong: int = Field(0, description="Elements that are far from the reference.")
    first: list[int] = Field(default_factory=list, description="Index of the first of them.")
    last: list[int] = Field(default_factory=list, description="Index of the last of them.")
    norm: Number = Field(0.0, description="Euclidean norm of the output's finite elements.")
    expected_norm: Number = Field(0.0, description="The same of the reference.")
    patterns: list[str] = Field(default_factory=list, description="What the wrong elements have in common.")
    example: Example | None = Field(None, description="The first wrong element; of trust `dev`.")
    trace: str = Field("", description="The frames of an error within the solution's file, and the error.")
    printed: str = Field("", description="The end of what the solution printed.")
