"""The measurements of a bundle: one record for each solution and torch baseline, with intervals, for every verb.

`compare` and `claims` read bundles only through this module. Times of the CPU, of smoke shapes, of `--trust dev` and of
a throttled GPU are not measurements: each record says so, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from repro import fingerprint
from repro.artifacts import layout
from repro.bundle.write import Bundle
from repro.errors import BundleError, UsageError
from repro.judge.timing.speedups import noise
from repro.records.benchmark import Round
from repro.records.comparison import Figure
from repro.records.fingerprint import Stack
from repro.records.profile import Profile
from repro.records.result import JudgeResult, Parity
from repro.records.row import Row
from repro.records.verdict import Ratio, Summary
from repro.studies import artifact_study, evaluation

VERBS = ("run", "evaluate", "benchmark")
# The edges of an interval of zero width may differ from its value by some roundings.
ROUNDING = 1e-9
E = TypeVar("E", Round, Profile)


@dataclass(frozen=True)
class Interval:
    """A positive value with its 95 % interval, of zero width if the width is unknown."""

    value: float
    low: float
    high: float

    def over(self, base: Interval) -> Interval:
        """Return the quotient of two independent values.

        Logs are taken as normal on either side of the value, and their widths add in quadrature.
        """
        ratio = self.value / base.value
        down = math.hypot(math.log(self.value / self.low), math.log(base.high / base.value))
        up = math.hypot(math.log(self.high / self.value), math.log(base.value / base.low))
        return Interval(ratio, ratio * math.exp(-down), ratio * math.exp(up))

    def record(self) -> Figure:
        """Return the record of it."""
        return Figure(value=self.value, ci95=[self.low, self.high])


def interval(found: Summary | Ratio | None) -> Interval | None:
    """Return the interval of a time (ms) or a ratio; None without one.

    Raises BundleError if it is not three positive numbers in order.
    """
    if found is None:
        return None
    value, name = (found.median, "median") if isinstance(found, Summary) else (found.ratio, "ratio")
    low, high = found.ci95
    if not (0 < low <= value * (1 + ROUNDING) and value <= high * (1 + ROUNDING) and math.isfinite(high)):
        raise BundleError(f"a {name} outside of its interval", f"{value} in [{low}, {high}]")
    return Interval(value, min(low, value), max(high, value))


@dataclass(frozen=True)
class Record:
    """One solution, or one torch baseline, of one row.

    key: equal for the same thing in two bundles. problem: the problem's key (`L1_36@bf16`). verdict: "" for a baseline.
    speedups: baseline -> solution's speedup over it. words: baseline -> the judge's word. best: the baseline of
    `best_same_class`. noise: how far from 1 the row's A/A control reaches, as a log. parity: what the published
    protocol gave in this row (`judge.timing.published_protocol.measure`), or None. judged_ms: median time (ms) of every
    variant of the row.
    why_not: why its times are not a measurement, or "".
    """

    key: tuple[str, str]
    row: str
    problem: str
    variant: str
    verdict: str = ""
    why: str = ""
    time_ms: Interval | None = None
    speedups: dict[str, Interval] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    best: str = ""
    arm: str = ""
    control: bool = False
    number: int | None = None
    noise: float = 0.0
    converged: bool = True
    parity: Parity | None = None
    judged_ms: dict[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    why_not: str = ""

    @property
    def published_ms(self) -> dict[str, float | None]:
        """Return the row's times (ms) by the published protocol, of each variant."""
        return self.parity.times_ms if self.parity else {}


@dataclass(frozen=True)
class Extra(Generic[E]):
    """What `benchmark` measured of an artifact beside its kernels: its rounds, or its profiles.

    why_not: why nothing in it is a measurement, or "".
    """

    entries: list[E]
    fingerprint: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Measured:
    """A whole bundle.

    unmeasured: key of a row -> why none of it was judged. why_not: why none of its times is a measurement, or "".
    rounds, profiles: by the number of the artifact.
    """

    name: str
    verb: str
    parameters: dict[str, Any]
    started: str
    status: str
    records: dict[tuple[str, str], Record]
    unmeasured: dict[str, str]
    fingerprints: dict[str, dict[str, Any]]
    why_not: str
    rounds: dict[int, Extra[Round]] = field(default_factory=dict)
    profiles: dict[int, Extra[Profile]] = field(default_factory=dict)

    @property
    def shipped(self) -> bool:
        """Return whether a kernel of it ships with the project. A bundle that does not say so counts as such."""
        return bool(self.parameters.get("shipped", True))


def read(bundle: Bundle) -> Measured:
    """Read a bundle. Raises UsageError if its verb measures no times, BundleError if its rows are damaged."""
    manifest = bundle.manifest
    parameters = manifest["parameters"]
    if manifest["verb"] not in VERBS:
        raise UsageError(
            f"{bundle.path} is a bundle of `{manifest['verb']}`", "it holds no solution's times",
            f"Name bundles of {', '.join(VERBS)}.",
        )  # fmt: skip
    records: dict[tuple[str, str], Record] = {}
    unmeasured: dict[str, str] = {}
    rounds: dict[int, Extra[Round]] = {}
    profiles: dict[int, Extra[Profile]] = {}
    why_not = _no_measurement(parameters)
    rows = _rows(bundle)
    for name in manifest["plan"]:
        row = rows.get(name)
        if row is None:
            number = layout.number(name) if manifest["verb"] == "benchmark" else None
            unmeasured[name if number is None else str(number)] = str(
                manifest.get("error") or "the run ended before it"
            )
        elif row.status != "done":
            unmeasured[_key(row)] = f"{row.status}: {row.error}"
        elif row.profiled and row.number is not None:
            profiles[row.number] = Extra(row.profiled.profiles, row.fingerprint_id or "", why_not)
        elif row.judged is None:
            raise BundleError(f"row {name} of {bundle.path} is damaged", "it is done and holds no verdict")
        elif row.rounds is not None and row.number is not None:
            told = why_not or row.judged.no_measurement
            rounds[row.number] = Extra(artifact_study.rounds(row), row.fingerprint_id or "", told)
        else:
            try:
                records |= {record.key: record for record in _records(row, row.judged, why_not)}
            except BundleError as error:
                raise BundleError(f"row {name} of {bundle.path} is damaged", str(error)) from error
    return Measured(
        bundle.name, manifest["verb"], parameters, str(manifest.get("started", "")), manifest["status"], records,
        unmeasured, bundle.fingerprints(), why_not, rounds, profiles,
    )  # fmt: skip


def _rows(bundle: Bundle) -> dict[str, Row]:
    """Return the rows of a bundle. Raises BundleError, which names the bundle, if one is damaged."""
    try:
        return bundle.records()
    except BundleError as error:
        raise BundleError(f"{error.what} in {bundle.path}", error.why) from error


def _no_measurement(parameters: dict[str, Any]) -> str:
    if parameters.get("device") != "cuda":
        return "it ran on the CPU, whose times are not a measurement"
    if parameters.get("set"):
        return "it ran at sizes of its own: --set changed the problem's"
    if parameters.get("size") != "full":
        return f"it ran at size {parameters.get('size')}: times of small shapes are not those of the problem"
    return ""


def _key(row: Row) -> str:
    """Return the key of a row. Folders of artifacts are equal if their numbers are: `04_Matrix...`, `4_Matrix...`."""
    alone = row.number is not None and artifact_study.own(row)
    return str(row.number) if alone else row.row


def _records(row: Row, result: JudgeResult, why_not: str) -> list[Record]:
    key, aa = _key(row), result.timing.aa
    shared = Record(
        (key, ""), row.row, row.problem, "", arm=row.arm or "", control=row.control, number=row.number,
        noise=noise(aa), converged=result.timing.status != "not_converged",
        parity=result.parity, judged_ms=_medians(result), fingerprint=row.fingerprint_id or "",
    )  # fmt: skip
    found = []
    for entry in result.results:
        # There is one solution a row, except for artifacts; where the row identifies it, its name is left out of the
        # key.
        variant = entry.solution if len(result.results) > 1 or row.number is not None else ""
        untold = "" if entry.measurement else result.no_measurement or "the row is not a measurement"
        dev = "it was judged with --trust dev, whose results are no verdicts" if entry.trust == "dev" else ""
        speedups = {name: interval(ratio) for name, ratio in entry.speedup.items()}
        best = entry.speedup.get("best_same_class")
        found.append(replace(
            shared, key=(key, variant), problem=entry.problem, variant=entry.solution, verdict=entry.verdict,
            why="" if entry.verdict == "correct" else evaluation.line(entry), time_ms=interval(entry.time_ms),
            speedups={name: ratio for name, ratio in speedups.items() if ratio is not None},
            words={name: ratio.word for name, ratio in entry.speedup.items() if ratio.word},
            best=(best.baseline or "") if best else "", why_not=why_not or untold or dev,
        ))  # fmt: skip
    problem = result.results[0].problem if result.results else row.problem
    whole = found[0].why_not if found else why_not or result.no_measurement
    for name, baseline in result.baselines.items():
        found.append(replace(shared, key=(key, name), problem=problem, variant=name,
                             time_ms=interval(baseline.time_ms), why_not=whole))  # fmt: skip
    return found


def _medians(result: JudgeResult) -> dict[str, float]:
    """Return the median time (ms) of every solution and baseline of a row that has one."""
    ours = {entry.solution: entry.time_ms.median for entry in result.results if entry.time_ms}
    return ours | {name: baseline.time_ms.median for name, baseline in result.baselines.items()}


def stack(measured: Measured, record: Record | Extra[Any]) -> Stack:
    """Return `fingerprint.stack` of the machine that measured a record, or a label that it was not recorded."""
    found = measured.fingerprints.get(record.fingerprint)
    if found is None:
        return Stack(label="stack not recorded", pinned=False)
    return fingerprint.stack(found)
