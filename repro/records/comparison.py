"""A comparison of two bundles, as `repro compare` writes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from repro.records.base import Number, Pair, Record

ComparedWord = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]


class Figure(Record):
    """A value with its 95 % interval."""

    value: Number
    """The value."""
    ci95: Pair
    """Its 95 % interval."""


class ComparedSpeedup(Record):
    """The speedups of a solution over one baseline in both bundles."""

    a: Figure
    """In A."""
    b: Figure
    """In B."""
    ratio: Number
    """B over A."""
    ci95: Pair
    """Its 95 % interval."""
    word: ComparedWord
    """What the interval says of B."""
    baseline: list[str] | None = None
    """Of `best_same_class`: the best baseline in A and in B."""


class ComparedTime(Record):
    """The times of a solution or baseline in both bundles, ms."""

    a: Figure
    """In A."""
    b: Figure
    """In B."""
    ratio: Number | None
    """B over A: under 1, B is faster. Null where the machines forbid it."""
    ci95: Pair | None
    """Its 95 % interval."""
    word: ComparedWord | None
    """What the interval says of B."""


class VerdictChange(Record):
    """A verdict that differs between the bundles. Lists hold A's and B's."""

    row: str
    """Id of the row in A."""
    variant: str
    """The solution or baseline."""
    verdict: list[str]
    """The verdicts; empty for a baseline."""
    why: list[str]
    """Why they are not correct."""


class ComparedRow(VerdictChange):
    """One solution or baseline that both bundles have, with its verdicts, whether they differ or not."""

    problem: str
    """The problem's key."""
    speedup: dict[str, ComparedSpeedup]
    """Baseline -> speedups over it."""
    time_ms: ComparedTime | None
    """Times, ms."""
    time_reason: str
    """Why times are not compared, or empty."""
    converged: list[bool]
    """Whether the timing converged."""


class OnlyIn(Record):
    """A record that one bundle lacks."""

    row: str
    """Id of the row."""
    variant: str
    """The solution or baseline."""
    reason: str
    """Why the other lacks it."""


class Difference(Record):
    """A field of two fingerprints that differs."""

    name: str
    """The field."""
    klass: str = Field(alias="class")
    """Identity, hard, configuration, dynamic or version."""
    hard: bool
    """Whether absolute times do not compare."""
    known: bool
    """Whether both sides recorded it."""
    a: Any
    """A's value, or the status of a missing one."""
    b: Any
    """B's."""


class ComparedMachines(Record):
    """The fingerprints of two rows."""

    a: str
    """Id of A's."""
    b: str
    """Id of B's."""
    same_unit: bool
    """Whether both are known to be the same GPU."""
    differences: list[Difference]
    """Every field that differs."""


class ComparedBundle(Record):
    """One of the two bundles."""

    bundle: str
    """Its name."""
    verb: str
    """The verb that left it."""
    status: str
    """Whether it is complete."""
    started: str
    """When it started, UTC."""
    size: str | None
    """`full` or `smoke`."""
    device: str | None
    """`cuda` or `cpu`."""
    stacks: list[str]
    """Its software, in words."""
    machines: dict[str, str]
    """Fingerprint -> the machine, in words."""
    measurement: bool
    """Whether its times are measurements."""
    why_not: str
    """Why they are not, or empty."""


class Comparison(Record):
    """Two bundles, row by row, and the machines that measured them."""

    schema_version: Literal[1]
    """Layout of this record."""
    a: ComparedBundle
    """The first bundle."""
    b: ComparedBundle
    """The second bundle."""
    rows: list[ComparedRow]
    """What both have."""
    only_a: list[OnlyIn]
    """What only A has."""
    only_b: list[OnlyIn]
    """What only B has."""
    verdict_changes: list[VerdictChange]
    """Verdicts that differ."""
    fingerprints: list[ComparedMachines]
    """Every pair of machines."""
    caveats: list[str]
    """What a reader must know beside the numbers."""
