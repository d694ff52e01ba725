"""The bundles of a document side by side: each gets a letter, and its solutions are read out row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from repro.analysis import records as measured
from repro.analysis.records import Measured
from repro.bundle import verify
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.report import model, parts

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Source:
    """One bundle. measured: None where it is of a verb that times no solution."""

    letter: str
    bundle: Bundle
    report: dict[str, Any]
    measured: Measured | None
    fingerprints: dict[str, dict[str, Any]]
    failed: list[dict[str, Any]]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Every solution that was judged or failed to be, and each kernel of an artifact: {"verdict", "outcome",
        "control"}. A torch control is no solution and not among them."""
        found = [{"verdict": e["verdict"], "outcome": e["outcome"], "control": arm["control"]}
                 for arm in self.report.get("arms", []) if not arm["torch_control"]
                 for e in arm["entries"]]  # fmt: skip
        missing = {"verdict": "not measured", "outcome": "not measured"}
        for artifact in self.report.get("artifacts", []):
            kernels = list(artifact["kernels"].values()) or [missing]
            found += [{"verdict": k["verdict"], "outcome": k["outcome"], "control": False} for k in kernels]
        return found

    @property
    def unstarted(self) -> int:
        """Planned rows that never began, without those of a control."""
        controls = [arm["name"] for arm in self.report.get("arms", []) if arm["control"] or arm["torch_control"]]
        names = [name for name in self.bundle.manifest["plan"] if name not in self.bundle.rows]
        return sum(not any(f"/{control}/" in name for control in controls) for name in names)

    @property
    def timed(self) -> bool:
        """Whether its times are a measurement."""
        return self.measured is not None and not self.measured.why_not

    @property
    def slowed(self) -> int:
        """Rows whose times are no measurement, because the GPU was throttled."""
        return sum("no_measurement" in row["result"] for row in self.done)

    @property
    def verb(self) -> str:
        """The verb that left it."""
        return str(self.report["verb"])

    @property
    def done(self) -> list[dict[str, Any]]:
        """Its measured rows, in plan order."""
        rows = [self.bundle.rows[name] for name in self.bundle.manifest["plan"] if name in self.bundle.rows]
        return [row for row in rows if row["status"] == "done"]

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

    def to_json(self) -> dict[str, Any]:
        """As plain data, without the bundle's report."""
        return {
            "letter": self.letter, "bundle": self.report["bundle"], "verb": self.verb,
            "started": self.report["started"], "status": self.report["status"], "stack": self.stack,
            "machine": self.machine, "machines": self.report["machines"],
            "bundle_id": self.bundle.manifest.get("bundle_id", ""), "tool": self.bundle.manifest.get("tool", ""),
            "measurement": self.report["measurement"], "verified": not self.failed,
        }  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """One solution of one row: the row's columns and the judge's entry."""

    source: Source
    row: dict[str, Any]
    entry: dict[str, Any]

    @property
    def problem(self) -> str:
        """As tables name it: the folder of an artifact, else the problem's key."""
        return str(self.row["problem"])

    @property
    def variant(self) -> str:
        """Where it comes from: arm and repeat, kernel of an artifact, or file."""
        repeat = f" #{self.row['repeat']}" if self.row.get("repeat") else ""
        return str(self.row.get("arm") or self.row.get("file") or self.entry["solution"]) + repeat

    @property
    def control(self) -> bool:
        """Whether it is a negative control, which must be wrong."""
        return bool(self.row.get("control"))

    @property
    def result(self) -> dict[str, Any]:
        """What the row's cell returned."""
        found: dict[str, Any] = self.row["result"]
        return found


def read(bundles: list[Bundle]) -> list[Source]:
    """One source a bundle, and for each kind of GPU that measured its rows. Raises UsageError for more than letters,
    BundleError where one is damaged."""
    bundles = [part for bundle in bundles for part in parts.parts(bundle)]
    if len(bundles) > len(LETTERS):
        raise UsageError(f"{len(bundles)} bundles in one report", f"{len(LETTERS)} at most stand side by side")
    return [
        Source(letter, bundle, model.build(bundle),
               measured.read(bundle) if bundle.manifest["verb"] in measured.VERBS else None, bundle.fingerprints(),
               _failed(bundle))
        for letter, bundle in zip(LETTERS, bundles, strict=False)
    ]  # fmt: skip


def _failed(bundle: Bundle) -> list[dict[str, Any]]:
    """The checks of `repro verify` that this bundle fails. Rows that an unfinished run lacks are no damage."""
    failed = verify.verify(bundle.path).failed
    unfinished = () if bundle.manifest["status"] == "complete" else ("planned against done",)
    return [check.to_json() for name, check in failed.items() if name not in unfinished]


def judged(source: Source) -> Iterator[Judged]:
    """Every solution of a bundle, in plan order."""
    if source.measured is not None:
        for row in source.done:
            for entry in row["result"].get("results", []):  # a row of profiles has none
                yield Judged(source, row, entry)
