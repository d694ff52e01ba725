"""The bundles of a document side by side: each gets a letter, and its solutions are read out row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from repro.analysis import records as measured
from repro.analysis.records import Measured
from repro.bundle import verify
from repro.bundle.verify import Finding
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.records.base import Record
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.records.verdict import Verdict
from repro.report import model, parts
from repro.report.model import Facts

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Described(Record):
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


class Entry(NamedTuple):
    """A solution or kernel as a report counts it."""

    verdict: str
    outcome: str
    control: bool


@dataclass(frozen=True)
class Source:
    """One bundle. measured: None where it is of a verb that times no solution."""

    letter: str
    bundle: Bundle
    report: Facts
    measured: Measured | None
    fingerprints: dict[str, dict[str, Any]]
    failed: list[Finding]

    @property
    def entries(self) -> list[Entry]:
        """Every solution that was judged or failed to be, and each kernel of an artifact. A torch control is no
        solution and not among them."""
        found = [Entry(e.verdict, e.outcome, arm.control)
                 for arm in self.report.arms if not arm.torch_control for e in arm.entries]  # fmt: skip
        for artifact in self.report.artifacts:
            found += [Entry(k.verdict, k.outcome, False) for k in artifact.kernels.values()] or [
                Entry("not measured", "not measured", False)
            ]
        return found

    @property
    def unstarted(self) -> int:
        """Planned rows that never began, without those of a control."""
        controls = [arm.name for arm in self.report.arms if arm.control or arm.torch_control]
        names = [name for name in self.bundle.manifest["plan"] if name not in self.bundle.rows]
        return sum(not any(f"/{control}/" in name for control in controls) for name in names)

    @property
    def timed(self) -> bool:
        """Whether its times are a measurement."""
        return self.measured is not None and not self.measured.why_not

    @property
    def slowed(self) -> int:
        """Rows whose times are no measurement, because the GPU was throttled."""
        return sum(bool(row.judged and row.judged.no_measurement) for row in self.done)

    @property
    def verb(self) -> str:
        """The verb that left it."""
        return self.report.verb

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Its rows by name."""
        return self.bundle.records()

    @property
    def done(self) -> list[Row]:
        """Its measured rows, in plan order."""
        planned = (self.rows.get(name) for name in self.bundle.manifest["plan"])
        return [row for row in planned if row and row.status == "done"]

    @property
    def stack(self) -> str:
        """The software in a few words: `pinned`, or what is not."""
        found = []
        for value in self.fingerprints.values():
            off = ", ".join(f"{name} {version}" for name, version in value["off_pin"].items())
            found.append(f"off-pin {off}" if off else "pinned")
        return "; ".join(dict.fromkeys(found)) or "not recorded"

    @property
    def machine(self) -> str:
        """The GPU's name, or that there was none."""
        names = [str(f["values"].get("gpu_name", {}).get("value") or "no GPU") for f in self.fingerprints.values()]
        return "; ".join(dict.fromkeys(names)) or "not recorded"

    def described(self) -> Described:
        """Return what a document says of it beside its facts."""
        return Described(
            letter=self.letter, bundle=self.report.bundle, verb=self.verb, started=self.report.started,
            status=self.report.status, stack=self.stack, machine=self.machine, machines=self.report.machines,
            bundle_id=self.bundle.manifest.get("bundle_id", ""), tool=self.bundle.manifest.get("tool", ""),
            measurement=self.report.measurement, verified=not self.failed,
        )  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """One solution of one row. result: the row's."""

    source: Source
    row: Row
    result: JudgeResult
    entry: Verdict

    @property
    def variant(self) -> str:
        """Where it comes from: arm and repeat, kernel of an artifact, or file."""
        repeat = f" #{self.row.repeat}" if self.row.repeat else ""
        return (self.row.arm or self.row.file or self.entry.solution) + repeat


def read(bundles: list[Bundle]) -> list[Source]:
    """One source a bundle, and for each kind of GPU that measured its rows. Raises UsageError for more than letters,
    BundleError where one is damaged."""
    bundles = [part for bundle in bundles for part in parts.parts(bundle)]
    if len(bundles) > len(LETTERS):
        raise UsageError(f"{len(bundles)} bundles in one report", f"{len(LETTERS)} at most stand side by side")
    return [
        Source(letter, bundle, model.build(bundle),
               measured.read(bundle) if bundle.manifest["verb"] in measured.VERBS else None, bundle.fingerprints(),
               failed(bundle))
        for letter, bundle in zip(LETTERS, bundles, strict=False)
    ]  # fmt: skip


def failed(bundle: Bundle) -> list[Finding]:
    """The checks of `repro verify` that this bundle fails. Rows that an unfinished run lacks are no damage."""
    found = verify.verify(bundle.path).failed
    unfinished = () if bundle.manifest["status"] == "complete" else ("planned against done",)
    return [check for name, check in found.items() if name not in unfinished]


def judged(source: Source) -> Iterator[Judged]:
    """Every solution of a bundle, in plan order."""
    if source.measured is not None:
        for row in source.done:
            if row.judged:  # a row of profiles is not
                yield from (Judged(source, row, row.judged, entry) for entry in row.judged.results)
