"""A claim: one published figure with its tolerance, declared beforehand; and what bundles say about it."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from repro.records.base import Amount, Number, Pair, Record, Text
from repro.records.fingerprint import Stack
from repro.records.verdict import Speedup
from repro.system.jsonio import Json

# Published descriptions of machines have rounded numbers.
_ROUNDED = 0.01

Kind = Literal["ratio", "absolute"]
Measure = Literal["speedup", "time", "mean", "gain", "running-best", "profile"]
ClaimWord = Literal["REPRODUCED", "DIFFERS", "AMBIGUOUS", "NOT-COMPARABLE", "BLOCKED"]


class Study(Record):
    """A `[study.NAME]` of claims.toml: where its figures stand, and the machine and the stack that they are of."""

    source: str
    """Where the figures stand."""
    machine: str
    """The machine, in words."""
    stack: str
    """The software, in words."""
    hard: dict[str, str | Amount]
    """Hard field of a fingerprint -> what is known of the machine: a word of the value, or a number."""


class _Figures(Record):
    """What the figures of a family have in common."""

    study: str
    """Name of its study: `agent` or `artifact`."""
    what: str
    """What a figure is; of a family with {problem}, {part} and {number}."""
    unit: str
    """Unit of the figures."""
    kind: Kind
    """`ratio` compares between machines; `absolute` only on the same kind of machine."""
    tolerance: dict[str, Amount]
    """`relative`, a share of the value, or `absolute`, in the unit."""
    at_least: Amount | None = None
    """A bound that the measured interval must keep as well."""
    reason: str
    """Why this tolerance."""
    measure: Measure
    """How a bundle's rows show it."""
    variant: str = ""
    """The solution or baseline that is meant."""
    over: str = ""
    """Which baseline a speedup is over."""
    ratio_tolerance: Amount = 0.0
    """Of running-best: relative, for the ratio to the input kernel."""
    metric: str = ""
    """Of profile: which total of a profile."""
    scale: Amount = 1.0
    """Of profile: from the total to the unit."""
    published_kernels: bool = False
    """Whether the figures are of the published kernels."""
    command: str
    """What tests it, with the words of `what`; empty where no command does."""
    minutes: Amount
    """What the command costs."""
    needs: list[str]
    """What must be there."""


class Family(_Figures):
    """A `[[family]]` of claims.toml: figures of one kind. What relates several fields is checked by the reader."""

    id: str
    """First part of the ids of its claims."""
    base: str = ""
    """Family with the published times of the input kernel."""
    each: list[str] = []
    """Names of the figures where a problem has several."""
    values: Json
    """Problem -> figure, or list of figures."""


class Claim(Study, _Figures):
    """One published figure. artifacts/claims.toml explains the fields and gives their sources."""

    id: Text
    """Family, problem and part."""
    problem: str
    """As published, or `all` if the figure covers all problems."""
    part: str
    """`round 3` or `input`, where a problem has several figures."""
    value: float
    """The published figure, in `unit`."""
    low: float
    """Lower edge of the band for a measured 95 % interval, in `unit`."""
    high: float
    """Its upper edge."""
    base: float | None
    """Of running-best: the published time of the input kernel, in `unit`."""

    @property
    def family(self) -> str:
        """Return the family of a claim: the first part of its id."""
        return self.id.partition("/")[0]

    @property
    def number(self) -> int | None:
        """Return the leading integer of an artifact's name, or None."""
        match = re.match(r"0*(\d+)_", self.problem)
        return int(match.group(1)) if match else None

    @property
    def key(self) -> str:
        """Return the key of the shipped problem of the figure: `L1_36`, of the artifact study `L1_36@bf16`."""
        return self.problem if self.number is None else f"L1_{self.number:02d}@bf16"

    def elsewhere(self, values: dict[str, Json]) -> list[str]:
        """Return how a machine differs from the published one, in words; empty if no difference is known.

        values: of a fingerprint. A field that is known of the published machine but not recorded here counts as a
        difference.
        """
        found = []
        for name, published in self.hard.items():
            here = values.get(name, {}).get("value")
            if not _matches(published, here):
                found.append(f"{name} {'not recorded' if here is None else here} (published: {published})")
        return found


def _matches(published: str | Amount, here: Any) -> bool:
    if here is None:
        return False
    if isinstance(published, str):
        return re.search(rf"(?<!\w){re.escape(published)}(?!\w)", str(here)) is not None
    return isinstance(here, int | float) and math.isclose(published, here, rel_tol=_ROUNDED)


class ClaimVerdict(Record):
    """One of the two verdicts on a claim."""

    verdict: ClaimWord
    """`REPRODUCED` `DIFFERS` `AMBIGUOUS` `NOT-COMPARABLE` `BLOCKED`"""
    reason: str
    """Why, in words and numbers."""
    measured: Number | None
    """The figure here, in the outcome's unit."""
    ci95: Pair | None
    """Its 95 % interval; of a figure measured once, 1 % on either side."""


class ClaimTrial(Record):
    """What one bundle says about a claim."""

    bundle: str
    """Its name."""
    as_published: ClaimVerdict
    """By the published way of measuring, which verifies nothing."""
    as_judged: ClaimVerdict
    """By the judge."""


class ClaimOutcome(Record):
    """The verdicts on a claim for one machine and stack."""

    stack: Stack | None
    """Null where no bundle has anything to do with it."""
    machine: str | None
    """The GPU's name."""
    published: float
    """What is compared with: the figure, or on another machine a ratio."""
    unit: str
    """Its unit."""
    low: float
    """Lower edge of the tolerance."""
    high: float
    """Its upper edge."""
    as_published: ClaimVerdict
    """By the published way of measuring, which verifies nothing."""
    as_judged: ClaimVerdict
    """The kernel is correct, and the judge's figure is within the band."""
    difference: str
    """Why the two figures differ, or empty."""
    over_best: Speedup | None
    """Of speedups: over the best torch baseline."""
    notes: list[str]
    """What limits the comparison."""
    trials: list[ClaimTrial]
    """What each bundle says."""

    def side(self, name: str) -> ClaimVerdict:
        """Return the verdict `as_published` or `as_judged`."""
        return self.as_published if name == "as_published" else self.as_judged


class JudgedClaim(Claim):
    """A claim with its outcomes."""

    outcomes: list[ClaimOutcome]
    """One a machine and stack, or one that says why there is none."""


class ClaimSource(Record):
    """A bundle that claims were held against."""

    bundle: str
    """Its name."""
    verb: str
    """The verb that left it."""
    why_not: str
    """Why its times are no measurement, or empty."""


class JudgedClaims(Record):
    """Claims held against bundles."""

    schema_version: Literal[2]
    """Layout of this record."""
    bundles: list[ClaimSource]
    """The bundles."""
    counts: dict[str, dict[str, int]]
    """`as_published`, `as_judged` -> verdict -> how many."""
    claims: list[JudgedClaim]
    """Every claim."""

    def pairs(self) -> list[tuple[JudgedClaim, ClaimOutcome]]:
        """Return every claim with each of its outcomes."""
        return [(claim, outcome) for claim in self.claims for outcome in claim.outcomes]
