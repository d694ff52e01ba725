"""A comparison of two bundles, as `repro compare` writes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from repro.records.base import Number, Pair, Record

ComparedWord = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]


class Figure(Record):
    """A value with its 95 % interval."""

    value: Number = Field(description="The value.")
    ci95: Pair = Field(description="Its 95 % interval.")


class ComparedSpeedup(Record):
    """The speedups of a solution over one baseline in both bundles."""

    a: Figure = Field(description="In A.")
    b: Figure = Field(description="In B.")
    ratio: Number = Field(description="B over A.")
    ci95: Pair = Field(description="Its 95 % interval.")
    word: ComparedWord = Field(description="What the interval says of B.")
    baseline: list[str] | None = Field(None, description="Of `best_same_class`: the best baseline in A and in B.")


class ComparedTime(Record):
    """The times of a solution or baseline in both bundles, ms."""

    a: Figure = Field(description="In A.")
    b: Figure = Field(description="In B.")
    ratio: Number | None = Field(description="B over A: under 1, B is faster. Null where the machines forbid it.")
    ci95: Pair | None = Field(description="Its 95 % interval.")
    word: ComparedWord | None = Field(description="What the interval says of B.")


class ComparedRow(Record):
    """One solution or baseline that both bundles have. Lists hold A's and B's."""

    row: str = Field(description="Id of the row in A.")
    variant: str = Field(description="The solution or baseline.")
    problem: str = Field(description="The problem's key.")
    verdict: list[str] = Field(description="The verdicts; empty for a baseline.")
    why: list[str] = Field(description="Why they are not correct.")
    speedup: dict[str, ComparedSpeedup] = Field(description="Baseline -> speedups over it.")
    time_ms: ComparedTime | None = Field(description="Times, ms.")
    time_reason: str = Field(description="Why times are not compared, or empty.")
    converged: list[bool] = Field(description="Whether the timing converged.")


class VerdictChange(Record):
    """A verdict that differs between the bundles. Lists hold A's and B's."""

    row: str = Field(description="Id of the row.")
    variant: str = Field(description="The solution.")
    verdict: list[str] = Field(description="The verdicts.")
    why: list[str] = Field(description="Why they are not correct.")


class OnlyIn(Record):
    """A record that one bundle lacks."""

    row: str = Field(description="Id of the row.")
    variant: str = Field(description="The solution or baseline.")
    reason: str = Field(description="Why the other lacks it.")


class MeasuredInNeither(Record):
    """A row that neither bundle measured."""

    row: str = Field(description="Id of the row.")
    a: str = Field(description="Why A lacks it.")
    b: str = Field(description="Why B lacks it.")


class ComparedMachines(Record):
    """The fingerprints of two rows."""

    a: str = Field(description="Id of A's.")
    b: str = Field(description="Id of B's.")
    same_unit: bool = Field(description="Whether both are known to be the same GPU.")
    differences: list[dict[str, Any]] = Field(description="Every field that differs, with its class.")


class ComparedBundle(Record):
    """One of the two bundles."""

    bundle: str = Field(description="Its name.")
    verb: str = Field(description="The verb that left it.")
    status: str = Field(description="Whether it is complete.")
    started: str = Field(description="When it started, UTC.")
    size: str | None = Field(description="`full` or `smoke`.")
    device: str | None = Field(description="`cuda` or `cpu`.")
    stacks: list[str] = Field(description="Its software, in words.")
    machines: dict[str, str] = Field(description="Fingerprint -> the machine, in words.")
    measurement: bool = Field(description="Whether its times are measurements.")
    why_not: str = Field(description="Why they are not, or empty.")


class Comparison(Record):
    """Two bundles, row by row, and the machines that measured them."""

    schema_version: Literal[1] = Field(description="Layout of this record.")
    a: ComparedBundle = Field(description="The first bundle.")
    b: ComparedBundle = Field(description="The second bundle.")
    rows: list[ComparedRow] = Field(description="What both have.")
    only_a: list[OnlyIn] = Field(description="What only A has.")
    only_b: list[OnlyIn] = Field(description="What only B has.")
    verdict_changes: list[VerdictChange] = Field(description="Verdicts that differ.")
    unmeasured: list[MeasuredInNeither] = Field(description="What neither measured.")
    fingerprints: list[ComparedMachines] = Field(description="Every pair of machines.")
    caveats: list[str] = Field(description="What a reader must know beside the numbers.")
