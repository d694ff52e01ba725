"""The bundles of a document side by side: each gets a letter, and its solutions are counted in groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from repro import fingerprint
from repro.analysis import gate, records
from repro.analysis.records import Implementation, Source
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.judge.timing import intervals
from repro.records import wording
from repro.records.base import Drawn, Pair, Record
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.records.verdict import Verdict
from repro.studies import artifact_study

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Baselines that means are over, the one of the headline last.
MEANS = ("eager", "compile", "best_same_class")


class Described(Drawn):
    """A bundle of a document. machines: fingerprint -> the machine in words; verified: by `repro verify`."""

    letter: str
    bundle: str
    verb: str
    started: str
    status: str
    stack: str
    machine: str
    machines: dict[str, str]
    bundle_id: str | None
    tool: str
    measurement: bool
    verified: bool


class Judged(Record):
    """A verdict of a row as `report.json` keeps it, so that `repro verify` can hold it to the row."""

    letter: str
    row: str
    solution: str
    verdict: str
    time_ms: float | None


def read(bundles: list[Bundle]) -> list[Source]:
    """One source a bundle. Raises UsageError for more than letters, BundleError where one is damaged."""
    if len(bundles) > len(_LETTERS):
        raise UsageError(f"{len(bundles)} bundles in one report", f"{len(_LETTERS)} at most stand side by side")
    return [records.source(bundle, letter) for letter, bundle in zip(_LETTERS, bundles, strict=False)]


def described(source: Source) -> Described:
    """Return what a document says of a bundle."""
    manifest = source.bundle.manifest
    machines = {name: fingerprint.headline(value) for name, value in source.fingerprints.items()}
    return Described(
        letter=source.letter, bundle=source.name, verb=source.verb, started=source.started, status=source.status,
        stack=stack(source), machine=source.machine, machines=machines, bundle_id=manifest.get("bundle_id", ""),
        tool=manifest.get("tool", ""), measurement=source.on_gpu, verified=not source.failed,
    )  # fmt: skip


def judged(source: Source) -> list[Judged]:
    """Return every verdict of a bundle with its time."""
    return [
        Judged(letter=source.letter, row=row.row, solution=verdict.solution, verdict=verdict.verdict,
               time_ms=verdict.time_ms.median if verdict.time_ms else None)
        for row in source.done for verdict in row.verdicts
    ]  # fmt: skip


def stack(source: Source) -> str:
    """The software in a few words: `pinned`, or what is not."""
    words = []
    for value in source.fingerprints.values():
        off = ", ".join(f"{name} {version}" for name, version in value["off_pin"].items())
        words.append(f"off-pin {off}" if off else "pinned")
    return "; ".join(dict.fromkeys(words)) or "not recorded"


class Solution(NamedTuple):
    """A judged solution with its row. The rounds of searches are among them."""

    source: Source
    row: Row
    result: JudgeResult
    verdict: Verdict

    @property
    def variant(self) -> str:
        """Where it comes from: arm and repeat, kernel of an artifact, or file."""
        repeat = f" #{self.row.repeat}" if self.row.repeat else ""
        return (self.row.arm or self.row.file or self.verdict.solution) + repeat


def solutions(source: Source) -> list[Solution]:
    """Return every judged solution of a bundle, in plan order; none of the self-test's cases."""
    rows = source.done if source.verb in records.VERBS else []
    return [Solution(source, row, row.judged, verdict) for row in rows if row.judged for verdict in row.judged.results]


def not_measured(source: Source) -> dict[str, str]:
    """Return every planned row without a result, with its reason."""
    lost = {}
    for name in source.plan:
        row = source.rows.get(name)
        if row is None:
            lost[name] = source.error or records.NOT_STARTED
        elif row.status != "done" and not row.left_out:
            status = "" if row.status == "unmet" else f"{row.status}: "  # an unmet prerequisite explains itself
            lost[name] = f"{status}{row.error}"
    return lost


def slowed(source: Source) -> int:
    """Return how many rows' times are no measurement, because the GPU was throttled."""
    return sum(bool(row.judged and row.judged.no_measurement) for row in source.done)


class Mean(Record):
    """A geometric mean of `n` speedups, of `of` planned ones."""

    ratio: float
    ci95: Pair
    n: int
    of: int


@dataclass(frozen=True)
class Group:
    """Solutions that are counted together: those of an arm or of `evaluate`, or the kernels of a benchmark.

    lost: rows that began and were not measured; unstarted: how many planned rows never began.
    """

    source: Source
    name: str
    label: str
    solutions: list[Implementation]
    lost: list[Row]
    unstarted: int

    @property
    def control(self) -> bool:
        """Whether it is a negative control, which must be wrong."""
        return any(row.control for row in self._rows)

    @property
    def torch_control(self) -> bool:
        """Whether it is torch itself as a solution."""
        return any(row.torch_control for row in self._rows)

    @property
    def studied(self) -> bool:
        """Whether its solutions are what a bundle is of: no control of either kind."""
        return not (self.control or self.torch_control)

    @property
    def _rows(self) -> list[Row]:
        return [*(each.row for each in self.solutions), *self.lost]

    @property
    def verdicts(self) -> list[wording.Judged]:
        """The verdict of every solution; `not measured` of a row that was lost."""
        lost = [wording.Told("not measured", [])] * len(self.lost)
        return [*(each.judgement for each in self.solutions), *lost]

    @property
    def means(self) -> dict[str, Mean]:
        """The geometric mean of correct solutions' speedups over each baseline, and how many problems it covers.

        Problems without a measured time are left out.
        """
        mine, of = self._planned
        timed = [each.judgement.speedup for each in mine
                 if each.outcome == "correct" and not each.result.no_measurement]  # fmt: skip
        means = {}
        for baseline in MEANS if not self.control else ():
            ratios = [speedup[baseline].counted.to_json() for speedup in timed if baseline in speedup]
            if ratios:
                means[baseline] = Mean(**intervals.geometric_mean(ratios), of=of)
        return means

    @property
    def _planned(self) -> tuple[list[Implementation], int]:
        """The solutions that means are of, and how many were planned; of a benchmark the optimised kernels."""
        if self.source.verb != "benchmark":
            return self.solutions, len(self._rows)
        rows = {row.row for row in self._rows}
        return [each for each in self.solutions if each.name == "optimized"], len(rows) + self.unstarted


def groups(source: Source) -> list[Group]:
    """Return the solutions of a bundle by arm, in the order of its arms; none of a verb that judges no solution."""
    arms: dict[str, str] = source.parameters.get("arms", {"": ""}) if source.verb in records.VERBS else {}
    lost = records.grouped((row.arm or "", row) for row in source.rows.values()
                           if row.status != "done" and _judges(row.row) and not row.workload)  # fmt: skip
    solutions = records.grouped((each.row.arm or "", each) for each in _together(source))
    unstarted = [name for name in source.plan if name not in source.bundle.rows and _judges(name)]
    return [
        Group(
            source, name, label, solutions.get(name, []), lost.get(name, []),
            sum(not name or f"/{name}/" in row for row in unstarted),
        )
        for name, label in arms.items()
    ]  # fmt: skip


def _together(source: Source) -> Iterator[Implementation]:
    """Yield the solutions of a bundle. One at several shapes is one, with the verdict at all of them."""
    verdicts = gate.by_solution(source.recorded if source.verb == "evaluate" else [])
    for key, of in records.grouped(((each.row.group, each.file), each) for each in source.solutions).items():
        first = max(of, key=lambda one: bool(one.result.no_measurement))  # one without a time leaves no mean
        verdict = verdicts.get(key)
        several = verdict and verdict.workloads
        yield replace(first, verdict=verdict, time_ms=None, shapes=of) if several else first


def _judges(row: str) -> bool:
    """Whether a row of this id judges kernels of its own: no rounds of a search, no profile."""
    return not row.endswith((artifact_study.ROUNDS, artifact_study.PROFILE))
