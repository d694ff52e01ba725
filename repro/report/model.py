"""The facts of one bundle: what `reports` of a document holds, and `repro verify` holds to the rows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from repro import fingerprint
from repro.bundle.write import Bundle
from repro.judge.timing import intervals
from repro.records import wording
from repro.records.base import Number, Pair, Record
from repro.records.benchmark import Entry, Round, Times
from repro.records.fixture import FixtureRecord
from repro.records.profile import Launch, Profile
from repro.records.result import JudgeResult, Parity
from repro.records.row import Row
from repro.records.verdict import CaseOutcome, KernelBenchVerdict, Reason, Speedup, Summary, Verdict
from repro.report import study
from repro.report.study import Study
from repro.studies import artifact_study, self_test


class Control(Record):
    """The A/A controls of a run: eager against eager in another worker. cover: how many intervals hold 1."""

    n: int = 0
    cover: int = 0
    widest: float = 0.0
    furthest: float = 0.0


class Fixture(Record):
    """A fixture in short."""

    problem: str
    margin: Number
    best_cheat: str | None
    refused: str
    trials_left_out: dict[str, str]
    build_s: float | None
    trials: list[str]
    eager_ms: Number | None


class Mean(Record):
    """A geometric mean of `n` speedups, of `of` planned ones."""

    ratio: float
    ci95: Pair
    n: int
    of: int


class Solution(Record):
    """A solution of a row. outcome: its verdict in words; of a row that is not done there is no more than `why`."""

    problem: str
    solution: str
    repeat: int
    verdict: str
    outcome: str
    why: str
    reasons: list[Reason] = []
    precision_class: str | None = None
    rel_l2: Number | None = None
    margin: Number | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    solution_ms: float | None = None
    ci95_ms: Pair | None = None
    speedup: dict[str, Speedup] = {}
    floor_ms: float | None = None
    floor_fraction: float | None = None
    labels: list[str] = []
    word: str | None = None
    latency_ms: float | None = None
    hot_ms: float | None = None
    own_kernel_share: float | None = None
    trust: str | None = None
    separation: str | None = None
    timing_status: str = ""
    no_measurement: str = ""
    legacy: dict[str, bool] = {}
    kernelbench: KernelBenchVerdict | None = None
    sizes: str = ""


class Arm(Record):
    """An arm of a run, or the solutions of `evaluate`. attempted: how many entries it has."""

    name: str
    label: str
    control: bool
    torch_control: bool
    entries: list[Solution]
    correct: int
    attempted: int
    geometric_mean: dict[str, Mean]


class Kernel(Record):
    """A kernel of an artifact. n: samples of its time."""

    verdict: str
    outcome: str
    why: str
    reasons: list[Reason]
    ms: float | None
    ci95_ms: Pair | None
    n: int | None
    speedup: dict[str, Speedup]
    floor_fraction: float | None


class ParityPairs(Parity):
    """The published protocol's times beside ours: [theirs, ours]. line: as the published script prints it."""

    ms: dict[str, list[Number | None]]
    speedup: list[Number | None]
    line: str


class Totals(Profile):
    """A profile without its launches."""

    launches: list[Launch] = Field([], exclude=True)


class Artifact(Times):
    """An artifact: its kernels, and times by the published script's keys."""

    problem: str
    times_ms: dict[str, Summary]
    best_baseline: Speedup | None
    no_measurement: str
    reasons: list[str]
    kernels: dict[str, Kernel]
    line: str
    parity: ParityPairs | None
    rounds: list[Round]
    profiles: list[Totals]
    floor_ms: float | None


class Facts(Record):
    """The facts of a bundle. Fields with a default are of some verbs alone."""

    bundle: str
    verb: str
    status: str
    error: str | None
    started: str
    parameters: dict[str, Any]
    engine: dict[str, Any]
    machines: dict[str, str]
    planned: int
    finished: int
    not_measured: list[dict[str, str]]
    measurement: bool
    control: Control
    fixtures: list[Fixture] = []
    cases: list[CaseOutcome] = []
    skipped: dict[str, str] = {}
    artifacts: list[Artifact] = []
    benchmark: dict[str, Mean] = {}
    arms: list[Arm] = []
    study: Study | None = None


def build(bundle: Bundle) -> Facts:
    """Return the facts of a bundle of any verb."""
    manifest = bundle.manifest
    records = bundle.records()
    rows = [records[name] for name in manifest["plan"] if name in records]
    return Facts(
        bundle=bundle.name, verb=manifest["verb"], status=manifest["status"], error=manifest.get("error", ""),
        started=manifest["started"], parameters=manifest["parameters"], engine=manifest.get("engine", {}),
        machines={name: fingerprint.headline(value) for name, value in bundle.fingerprints().items()},
        planned=len(manifest["plan"]), finished=sum(row.status == "done" for row in rows),
        not_measured=_not_measured(bundle, records), measurement=manifest["parameters"].get("device") == "cuda",
        control=_control(rows), **_of_verb(bundle, rows),
    )  # fmt: skip


def _of_verb(bundle: Bundle, rows: list[Row]) -> dict[str, Any]:
    """Return the fields that bundles of one verb alone have."""
    manifest = bundle.manifest
    if manifest["verb"] == "fixtures":
        return {"fixtures": [_fixture(row.result) for row in rows if isinstance(row.result, FixtureRecord)]}
    if manifest["verb"] == "self-test":
        return {"cases": self_test.outcomes(bundle), "skipped": manifest["parameters"]["skipped"]}
    if manifest["verb"] == "benchmark":
        entries = artifact_study.entries(rows)
        optimized = [(e.kernels["optimized"], e.no_measurement) for e in entries if "optimized" in e.kernels]
        return {"artifacts": [_artifact(each) for each in entries], "benchmark": _means(optimized, len(entries))}
    arms = [_arm(name, label, rows) for name, label in manifest["parameters"].get("arms", {"": ""}).items()]
    told = study.build(bundle, rows)
    return {"arms": arms} | ({"study": told} if told else {})


def _control(rows: list[Row]) -> Control:
    found = [row.judged.timing.aa for row in rows if row.judged and row.judged.timing.aa]
    if not found:
        return Control()
    return Control(
        n=len(found),
        cover=sum(aa.ci95[0] <= 1 <= aa.ci95[1] for aa in found),
        widest=max((aa.ci95[1] - aa.ci95[0]) / 2 for aa in found),
        furthest=max(abs(aa.ratio - 1) for aa in found),
    )


def _not_measured(bundle: Bundle, rows: dict[str, Row]) -> list[dict[str, str]]:
    """Return every planned row without a result, with its reason."""
    found = []
    for name in bundle.manifest["plan"]:
        row = rows.get(name)
        if row is None:
            found.append({"row": name, "reason": bundle.manifest.get("error") or "the run ended before it"})
        elif row.status != "done":
            status = "" if row.status == "unmet" else f"{row.status}: "  # an unmet prerequisite explains itself
            found.append({"row": name, "reason": f"{status}{row.error}"})
    return found


def _fixture(result: FixtureRecord) -> Fixture:
    return Fixture(
        problem=result.problem, margin=result.margin, best_cheat=result.best_cheat, refused=result.refused,
        trials_left_out=result.trials_left_out, build_s=result.build_s, trials=list(result.trials),
        eager_ms=result.reference_timing.get("eager_ms"),
    )  # fmt: skip


def _arm(name: str, label: str, rows: list[Row]) -> Arm:
    mine = [row for row in rows if (row.arm or "") == name]
    entries = []
    for row in mine:
        if row.judged:
            entries += [_solution(row, row.judged, verdict) for verdict in row.judged.results]
        else:
            entries.append(Solution(problem=row.problem, solution=row.file or "", repeat=row.repeat,
                                    verdict="not measured", outcome="not measured",
                                    why=f"not measured: {row.error}"))  # fmt: skip
    control = any(row.control for row in mine)
    judged = [(verdict, row.judged.no_measurement) for row in mine if row.judged for verdict in row.judged.results]
    return Arm(
        name=name,
        label=label,
        control=control,
        torch_control=any(row.torch_control for row in mine),
        entries=entries,
        correct=sum(entry.verdict == "correct" for entry in entries),
        attempted=len(entries),
        geometric_mean={} if control else _means(judged, len(entries)),
    )


def _solution(row: Row, result: JudgeResult, verdict: Verdict) -> Solution:
    eager, compiled = (result.baselines.get(name) for name in ("eager", "compile"))
    time = verdict.time_ms
    more: dict[str, Any] = {"kernelbench": verdict.kernelbench} if verdict.kernelbench else {}
    more |= {"sizes": result.sizes.stamp} if result.sizes else {}
    return Solution(
        problem=verdict.problem, solution=row.file or verdict.solution, repeat=row.repeat, verdict=verdict.verdict,
        outcome=wording.word(verdict), why=wording.why(verdict), reasons=verdict.reasons,
        precision_class=verdict.precision_class, rel_l2=verdict.rel_l2, margin=result.margin,
        eager_ms=eager.time_ms.median if eager else None, compile_ms=compiled.time_ms.median if compiled else None,
        solution_ms=time.median if time else None, ci95_ms=time.ci95 if time else None, speedup=verdict.speedup,
        floor_ms=verdict.floor_ms, floor_fraction=verdict.floor_fraction, labels=verdict.labels, word=verdict.word,
        latency_ms=verdict.latency_ms.median if verdict.latency_ms else None, hot_ms=verdict.hot_ms,
        own_kernel_share=verdict.own_kernel_share, trust=verdict.trust, separation=verdict.separation,
        timing_status=result.timing.status, no_measurement=result.no_measurement, legacy=verdict.legacy, **more,
    )  # fmt: skip


UNGAINED = {"ratio": 1.0, "ci95": [1.0, 1.0]}


def _means(judged: list[tuple[Verdict, str]], of: int) -> dict[str, Mean]:
    """Return the geometric mean of correct solutions' speedups over each baseline, and how many problems it covers.

    judged: (solution, why its times are no measurement). Problems without a measured time are left out. A speedup too
    small for the judge's clock to confirm counts as 1.0: leaving it out would raise the mean of the others.
    """
    found = {}
    timed = [verdict.speedup for verdict, why_not in judged if verdict.verdict == "correct" and not why_not]
    for baseline in ("eager", "compile", "best_same_class"):
        found_in = [speedup[baseline] for speedup in timed if baseline in speedup]
        ratios = [UNGAINED if each.word == "UNCONFIRMED" else each.to_json() for each in found_in]
        if ratios:
            found[baseline] = Mean(**intervals.geometric_mean(ratios), of=of)
    return found


def _artifact(entry: Entry) -> Artifact:
    return Artifact(
        problem=entry.problem, eager_ms=entry.eager_ms, compile_ms=entry.compile_ms,
        input_kernel_ms=entry.input_kernel_ms, optimized_ms=entry.optimized_ms, times_ms=entry.times_ms,
        best_baseline=entry.best_baseline, no_measurement=entry.no_measurement, reasons=entry.reasons,
        kernels={name: _kernel(verdict) for name, verdict in entry.kernels.items()},
        line=artifact_study.published_line(entry), parity=_parity(entry), rounds=entry.rounds,
        profiles=[Totals.model_validate(each.to_json()) for each in entry.profiles],
        floor_ms=next((v.floor_ms for v in entry.kernels.values() if v.floor_ms), None),
    )  # fmt: skip


def _kernel(verdict: Verdict) -> Kernel:
    time = verdict.time_ms
    return Kernel(
        verdict=verdict.verdict, outcome=wording.word(verdict), why=wording.why(verdict), reasons=verdict.reasons,
        ms=time.median if time else None, ci95_ms=time.ci95 if time else None, n=time.n if time else None,
        speedup=verdict.speedup, floor_fraction=verdict.floor_fraction,
    )  # fmt: skip


def _parity(entry: Entry) -> ParityPairs | None:
    theirs = entry.parity
    if theirs is None:
        return None
    return ParityPairs(
        ms={key: [getattr(theirs, key), getattr(entry, key)] for key in Times.model_fields},
        speedup=[theirs.speedup, entry.speedup],
        line=artifact_study.published_line(theirs),
        protocol=theirs.protocol,
        grad=theirs.grad,
        measurement=theirs.measurement,
        reasons=theirs.reasons,
    )
