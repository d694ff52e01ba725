"""Bundles as they are compared and drawn: their rows, every solution and torch baseline in them, and their machines.

Times of the CPU, of small shapes, of `--trust dev` and of a throttled GPU are not measurements: each implementation
says so, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from repro import fingerprint
from repro.artifacts import layout
from repro.bundle import verify
from repro.bundle.verify import Finding
from repro.bundle.write import Bundle
from repro.errors import BundleError, UsageError
from repro.judge.timing.speedups import noise
from repro.records.comparison import Figure
from repro.records.fingerprint import Stack
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.records.verdict import Ratio, SpeedWord, Summary, Verdict
from repro.studies import artifact_study, evaluation
from repro.system.groups import grouped as grouped
from repro.system.jsonio import Json

VERBS = ("run", "evaluate", "benchmark")
NOT_STARTED = "the run ended before it"
# The edges of an interval of zero width may differ from its value by some roundings.
_ROUNDING = 1e-9
Fingerprint = Json


@dataclass(frozen=True)
class Interval:
    """A positive value with its 95 % interval, of zero width if the width is unknown."""

    value: float
    low: float
    high: float

    @property
    def ci95(self) -> list[float]:
        """Return the interval as records have it."""
        return [self.low, self.high]

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
        return Figure(value=self.value, ci95=self.ci95)


def interval(found: Summary | Ratio | None) -> Interval | None:
    """Return the interval of a time (ms) or a ratio; None without one.

    Raises BundleError if it is not three positive numbers in order.
    """
    if found is None:
        return None
    value, name = (found.median, "median") if isinstance(found, Summary) else (found.ratio, "ratio")
    low, high = found.ci95
    if not (0 < low <= value * (1 + _ROUNDING) and value <= high * (1 + _ROUNDING) and math.isfinite(high)):
        raise BundleError(f"a {name} outside of its interval", f"{value} in [{low}, {high}]")
    return Interval(value, min(low, value), max(high, value))


def together(repeats: list[Interval]) -> Interval:
    """Combine repeats: their geometric mean, with an interval from the lowest edge to the highest.

    One run's interval does not cover the scatter between runs.
    """
    mean = math.exp(sum(math.log(repeat.value) for repeat in repeats) / len(repeats))
    return Interval(mean, min(repeat.low for repeat in repeats), max(repeat.high for repeat in repeats))


@dataclass(frozen=True)
class Implementation:
    """One solution, or one torch baseline, of one row.

    key: equal for the same thing in two bundles. verdict: None for a baseline. speedups: baseline -> speedup over it.
    why_not: why its times are not a measurement, or "". shapes: of a solution at several shapes, itself at each.
    """

    key: tuple[str, str]
    row: Row
    result: JudgeResult
    name: str
    why_not: str
    time_ms: Interval | None
    verdict: Verdict | None = None
    speedups: dict[str, Interval] = field(default_factory=dict)
    shapes: list[Implementation] = field(default_factory=list)

    @property
    def judgement(self) -> Verdict:
        """Return the verdict of a solution. A baseline has none."""
        assert self.verdict is not None
        return self.verdict

    @property
    def outcome(self) -> str:
        """Return its verdict; "" for a baseline."""
        return self.verdict.verdict if self.verdict else ""

    @property
    def why(self) -> str:
        """Return why it is not correct, or ""."""
        return evaluation.line(self.verdict) if self.verdict and self.verdict.verdict != "correct" else ""

    @property
    def problem(self) -> str:
        """Return the key of its problem (`L1_36@bf16`)."""
        return next((verdict.problem for verdict in [self.verdict, *self.result.results] if verdict), self.row.problem)

    @property
    def file(self) -> str:
        """Return the file of the solution."""
        return self.row.file or self.name

    @property
    def best(self) -> str:
        """Return the name of the best torch baseline of its class, or ""."""
        best = self.verdict.speedup.get("best_same_class") if self.verdict else None
        return (best.baseline or "") if best else ""

    @property
    def timed(self) -> bool:
        """Return whether it is correct and has a time that is a measurement."""
        return self.outcome == "correct" and not self.why_not and self.time_ms is not None

    @property
    def noise(self) -> float:
        """Return how far from 1 the row's A/A control reaches, as a log."""
        return noise(self.result.timing.aa)

    @property
    def converged(self) -> bool:
        """Return whether the row's intervals were narrow enough before its time budget ended."""
        return self.result.timing.status != "not_converged"

    def word(self, over: str) -> SpeedWord | None:
        """Return the judge's word on its speedup over a baseline."""
        speedup = self.verdict.speedup.get(over) if self.verdict else None
        return speedup.word if speedup else None


@dataclass(frozen=True)
class Source:
    """A whole bundle. letter: what names it in a document. verb to plan: of its manifest.

    unmeasured: key of a row -> why none of it was judged. why_not: why none of its times is a measurement, or "".
    rounds, profiles: the rows of `benchmark` beside its kernels, by the number of the artifact.
    """

    bundle: Bundle
    letter: str
    rows: dict[str, Row]
    fingerprints: dict[str, Fingerprint]
    why_not: str
    verb: str
    status: str
    error: str
    started: str
    parameters: Json
    plan: list[str]
    implementations: dict[tuple[str, str], Implementation] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    rounds: dict[int, Row] = field(default_factory=dict)
    profiles: dict[int, Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the bundle's name."""
        return self.bundle.name

    @property
    def recorded(self) -> list[Row]:
        """Return its rows, in plan order."""
        return [self.rows[name] for name in self.plan if name in self.rows]

    @property
    def done(self) -> list[Row]:
        """Return its measured rows, in plan order."""
        return [row for row in self.recorded if row.status == "done"]

    @property
    def solutions(self) -> list[Implementation]:
        """Return every judged solution, in plan order."""
        return [each for each in self.implementations.values() if each.verdict]

    @property
    def shipped(self) -> bool:
        """Return whether a kernel of it ships with the project. A bundle that does not say so counts as such."""
        return bool(self.parameters.get("shipped", True))

    @property
    def timed(self) -> bool:
        """Return whether its times are a measurement."""
        return self.verb in VERBS and not self.why_not

    @property
    def on_gpu(self) -> bool:
        """Return whether it ran on a GPU."""
        return self.parameters.get("device") == "cuda"

    @property
    def machine(self) -> str:
        """Return the GPU's name, or that there was none."""
        names = [str(fingerprint.value(found, "gpu_name") or "no GPU") for found in self.fingerprints.values()]
        return "; ".join(dict.fromkeys(names)) or "not recorded"

    @cached_property
    def failed(self) -> list[Finding]:
        """Return the checks of `repro verify` that it fails. Rows that an unfinished run lacks are no damage."""
        findings = verify.verify(self.bundle.path).failed
        unfinished = () if self.status == "complete" else ("planned against done",)
        return [check for name, check in findings.items() if name not in unfinished]

    def stack(self, row: Row | None) -> Stack:
        """Return the software that measured a row, or a label that it was not recorded."""
        found = self.fingerprints.get((row and row.fingerprint_id) or "")
        return fingerprint.stack(found) if found else Stack(label="stack not recorded", pinned=False)

    def values(self, row: Row | None) -> Fingerprint:
        """Return the values of the fingerprint of a row."""
        values: Fingerprint = self.fingerprints.get((row and row.fingerprint_id) or "", {}).get("values", {})
        return values


def read(bundle: Bundle) -> Source:
    """Read a bundle. Raises UsageError if its verb measures no times, BundleError if its rows are damaged."""
    verb = bundle.manifest["verb"]
    if verb not in VERBS:
        what, advice = "it holds no solution's times", f"Name bundles of {', '.join(VERBS)}."
        raise UsageError(f"{bundle.path} is a bundle of `{verb}`", what, advice)
    return source(bundle)


def source(bundle: Bundle, letter: str = "") -> Source:
    """Read a bundle of any verb. Raises BundleError if its rows are damaged."""
    manifest = bundle.manifest
    try:
        rows = bundle.records()
    except BundleError as error:  # which does not name the bundle
        raise BundleError(f"{error.what} in {bundle.path}", error.why) from error
    found = Source(
        bundle, letter, rows, bundle.fingerprints(), _no_measurement(manifest["parameters"]), manifest["verb"],
        manifest["status"], manifest.get("error") or "", manifest.get("started", ""), manifest["parameters"],
        manifest["plan"],
    )  # fmt: skip
    for name in found.plan if found.verb in VERBS else []:
        row = rows.get(name)
        if row is None:
            number = layout.number(name) if found.verb == "benchmark" else None
            found.unmeasured[name if number is None else str(number)] = found.error or NOT_STARTED
        elif row.status != "done":
            found.unmeasured[_key(row)] = f"{row.status}: {row.error}"
        elif row.profiles and row.number is not None:
            found.profiles[row.number] = row
        elif row.judged is None:
            raise BundleError(f"row {name} of {bundle.path} is damaged", "it is done and holds no verdict")
        elif row.rounds is not None and row.number is not None:
            found.rounds[row.number] = row
        else:
            _add(found, row, row.judged)
    return found


def _no_measurement(parameters: Json) -> str:
    if parameters.get("device") != "cuda":
        return "it ran on the CPU, whose times are not a measurement"
    if parameters.get("size") != "full":
        return f"it ran at size {parameters.get('size')}: times of small shapes are not those of the problem"
    return ""


def _key(row: Row) -> str:
    """Return the key of a row. Folders of artifacts are equal if their numbers are: `04_Matrix...`, `4_Matrix...`."""
    alone = row.number is not None and artifact_study.own(row)
    return str(row.number) if alone else row.row


def _add(found: Source, row: Row, result: JudgeResult) -> None:
    """Add the solutions and baselines of a row. Raises BundleError, which names the row, if one is damaged."""
    try:
        solutions = [_solution(row, result, verdict, found.why_not) for verdict in result.results]
        why_not = solutions[0].why_not if solutions else found.why_not or result.no_measurement
        baselines = [Implementation((_key(row), name), row, result, name, why_not, interval(baseline.time_ms))
                     for name, baseline in result.baselines.items()]  # fmt: skip
    except BundleError as error:
        raise BundleError(f"row {row.row} of {found.bundle.path} is damaged", str(error)) from error
    found.implementations.update({each.key: each for each in solutions + baselines})


def _solution(row: Row, result: JudgeResult, verdict: Verdict, why_not: str) -> Implementation:
    # There is one solution a row, except for artifacts; where the row identifies it, its name is left out of the key.
    named = len(result.results) > 1 or row.number is not None
    return Implementation(
        (_key(row), verdict.solution if named else ""), row, result, verdict.solution,
        why_not or _untimed(result, verdict), interval(verdict.time_ms), verdict,
        {name: found for name, ratio in verdict.speedup.items() if (found := interval(ratio)) is not None},
    )  # fmt: skip


def _untimed(result: JudgeResult, verdict: Verdict) -> str:
    """Return why a solution's own times are no measurement, or ""."""
    if not verdict.measurement:
        return result.no_measurement or "the row is not a measurement"
    return "it was judged with --trust dev, whose results are no verdicts" if verdict.trust == "dev" else ""
