"""A fixture: what evaluation needs besides the problem. Seeds, checksums, limits and margins; never a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from repro.records.base import Number, Record, Sha256
from repro.records.result import Observed
from repro.system.jsonio import Json

Limits = dict[str, Number]
# Trials with the published inputs: the first one that a fixture has says what the published comparison lets pass.
PUBLISHED = ("native", "perturbed")
# Published inputs -> stressed ones with the same weights.
STRESSED = {"native": "stress", "perturbed": "perturbed_stress"}


class Limited(Record):
    """The limits of one kind of input case: what judging reads of it."""

    stress: Any
    """How inputs are changed, or null."""
    limits: dict[str, Limits] = {}
    """Precision class -> limits of the distances."""
    needed: Limits = {}
    """Precision class without limits -> the relative L2 limit that it needs, which is too wide."""


class TrialLimits(Limited):
    """The honest and cheating distances of one kind of input case, and the limits that follow."""

    seed: int
    """Seed of the public draw."""
    weights_sha256: Sha256
    """Hash of the weights."""
    cheats: dict[str, Json] = {}
    """Built-in cheat -> its distances, and whether the published comparison passes it."""
    sensitivity: Number | None = None
    """Relative L2 distance of the output for other inputs."""
    finite: bool | None = None
    """Whether every element of the fp64 output is finite."""
    zero_share: Number | None = None
    """Share of elements that are exactly 0."""
    draws: int | None = None
    """Draws of inputs that the limits come from."""
    honest: dict[str, Limits] = {}
    """Precision class -> worst honest distances."""
    sketch: Any = None
    """Row norms and sampled elements of the fp64 output, in bundles of earlier releases."""


class Fixture(Record):
    """What judging reads of a fixture. An agent has no more."""

    dtype: str
    """Of inputs and weights."""
    problem_sha256: Sha256
    """Hash of the problem file."""
    weights_sha256: Sha256
    """Hash of the weights."""
    trials: Mapping[str, Limited]
    """Kind of input case -> its limits."""
    trials_left_out: dict[str, str] = {}
    """Kind of input case -> why it is not one."""
    neighbour: Json = {}
    """Limits at the neighbouring shape, or a reason, in older bundles."""
    margin: Number
    """Best cheat's score over the worst honest kernel's."""
    margins: dict[str, Number] = {}
    """The same by precision class."""
    refused_classes: dict[str, str] = {}
    """Precision class -> why it is not admitted."""
    degenerate: Json = {}
    """Of a refused fixture: its kind, and the proof in words and numbers."""
    refused: str
    """Why the fixture judges nothing, or empty."""
    usual: dict[str, list[Number]] = {}
    """Weights and stress -> usual root mean square of each output that is a sum which cancels, 0 of others."""
    timed: str = ""
    """Kind of input case that is timed: the published inputs, or stressed ones if no class can tell a cheat there."""
    output: Any = None
    """Shape and dtype of the output, nested as it is."""

    def outputs(self) -> list[Json]:
        """Return shape and dtype of every output."""
        return list(_leaves(self.output))

    def output_name(self, place: int | None) -> str:
        """Return an output in words, as `output 1 of 3 (int64, 64 x 4)`, or the empty string where there is one."""
        found = self.outputs()
        if place is None or len(found) < 2:
            return ""
        shape = " x ".join(map(str, found[place]["shape"])) or "a number"
        return f"output {place + 1} of {len(found)} ({found[place]['dtype']}, {shape})"


def _leaves(spec: Any) -> Iterator[Json]:
    """Yield the tensors of an output spec."""
    if isinstance(spec, list):
        for part in spec:
            yield from _leaves(part)
    elif spec is not None:
        yield spec


class FixtureRecord(Fixture, Observed):
    """The result of a `fixture` job, and the file that it becomes."""

    schema_version: int
    """Layout of the fixture."""
    problem: str
    """The problem's key."""
    size: str
    """`full` or `smoke`."""
    generator: str
    """Name and version of the inputs' generator."""
    device: str
    """`cuda` or `cpu`."""
    public_seed: int
    """Seed of the public inputs."""
    inputs: list[Json]
    """Shape, dtype and checksum of every input."""
    foreign_random: list[Any] = []
    """Random calls that the generator does not serve."""
    trials: dict[str, TrialLimits]
    """Kind of input case -> its limits."""
    best_cheat: str | None = None
    """The cheat that comes nearest to passing."""
    best_cheat_score: Number | None = None
    """Its distance over the loosest limit."""
    worst_honest_score: Number | None = None
    """The worst honest distance over its limit."""
    influence: list[Any] = []
    """In bundles of earlier releases, for every input: relative change of the output when that input is another."""
    reference_timing: Any = None
    """In bundles of earlier releases: a few eager calls, ms."""
    tails: Limits = {}
    """Elementwise function -> the largest argument of the call of it that the trials reach least."""
    unseen: Number = 0.0
    """Share of the first rows' output that is negligible in every trial."""
    build_s: float | None = None
    """Seconds that it took."""
