"""Makes verdicts from distances and times. Words: correct incorrect rejected error timeout inconclusive
unjudgeable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal

from repro.judge.correctness.distance import CODES, Values, at, named, rounded, split
from repro.judge.correctness.tolerances import CLASSES, class_of
from repro.judge.source import kernels as kernel_origins
from repro.judge.source.labels import labels as labels_of
from repro.judge.timing import intervals, roofline, sampling, speedups
from repro.problems.catalogue import Problem
from repro.records.fixture import STRESSED, Fixture
from repro.records.options import Trust
from repro.records.result import PUBLISHED_BASELINES, Baseline, Ceilings, Timing
from repro.records.verdict import Distances, PrecisionClass, Reason, Speedup, Speedups, Summary, Verdict, VerdictWord
from repro.records.where import Where
from repro.records.wording import CASES

if TYPE_CHECKING:
    from repro.judge.implementation import Implementation

# Codes of reasons on the values of an output, and the place of an input case from simple to strange.
REPEATED = "nondeterministic_wrong"
VALUES = {*CODES.values(), "not_finite", REPEATED}
_ORDER = {kind: place for place, kind in enumerate(CASES)}
_UNJUDGEABLE: Literal["unjudgeable"] = "unjudgeable"
# Labels that say something of a correct solution alone.
_OF_CORRECT = {"nonfinite", "needs_contiguous"}
NOT_TIMED = "only correct solutions are timed"


@dataclass(frozen=True)
class Judged:
    """What a solution's trials say of it, before it is timed."""

    verdict: VerdictWord
    reasons: list[Reason]
    precision_class: PrecisionClass | None = None
    rel_l2: float | None = None


def judge(implementation: Implementation, fixture: Fixture) -> Judged:
    """Return verdict, class and reasons from a solution's trials. Every planned kind must have been judged."""
    worst = max((v["rel_l2"] for t in implementation.distances.values() for v in t), default=None)

    def judged(word: VerdictWord, *reasons: Reason, klass: PrecisionClass | None = None) -> Judged:
        return Judged(word, sorted([*implementation.reasons, *reasons], key=_simplest), klass, worst)

    if implementation.failed == "incorrect":
        return judged("incorrect", *_excesses(implementation, fixture))
    if implementation.failed:
        return judged(implementation.failed)
    missing = [kind for kind in fixture.trials if kind not in implementation.distances]
    if missing:
        detail = f"trials that did not run: {', '.join(missing)}"
        return judged("inconclusive", Reason(code="trials_missing", detail=detail))
    klass = class_of(implementation.distances, fixture)
    if klass is None and (only := class_of(implementation.distances, fixture, refused=True)):
        detail = f"its error fits class {only} alone, in which {fixture.refused_classes[only]}"
        return judged(_UNJUDGEABLE, Reason(code="class_refused", detail=detail))
    if klass is None:
        return judged("incorrect", *_excesses(implementation, fixture))
    return judged("correct", klass=klass)


def _simplest(reason: Reason) -> tuple[bool, int, bool]:
    """Order reasons on the values of an output: simple inputs before strange ones, an error before its repetition."""
    return reason.code not in VALUES, _ORDER.get(reason.trial, len(_ORDER)), reason.code == REPEATED


def unjudgeable(fixture: Fixture) -> Judged:
    """Return the verdict on any solution of a problem whose fixture is refused, with the proof in it."""
    detail = "; ".join(filter(None, (fixture.refused, fixture.degenerate.get("proof", ""))))
    return Judged(_UNJUDGEABLE, [Reason(code="degenerate", detail=detail)])


def _excesses(implementation: Implementation, fixture: Fixture) -> list[Reason]:
    """Return a reason for each deciding trial kind: the guard that exceeds the loosest class's limit most.

    Where another kind keeps the solution from every class, one on which a looser class has no limit says nothing.
    """
    infinite = {reason.trial for reason in implementation.reasons if reason.code == "not_finite"}  # have one already
    telling, others = list[Reason](), list[Reason]()
    for kind, trial in fixture.trials.items():
        every = implementation.distances.get(kind, [])
        calls = [call for call in every if kind not in infinite or isfinite(call["rel_l2"])]
        *_, last = CLASSES[fixture.dtype]
        klass = next((klass for klass in reversed(CLASSES[fixture.dtype]) if trial.limits.get(klass)), None)
        if calls and klass is not None:
            far = klass == last or not max(call["rel_l2"] for call in calls) <= trial.needed.get(last, inf)
            (telling if far else others).extend(_excess(kind, calls, klass, trial.limits[klass], fixture))
    return telling or others


def _excess(kind: str, calls: list[Values], klass: PrecisionClass, limits: Values, fixture: Fixture) -> list[Reason]:
    worst = {name: max(call.get(name, 0.0) for call in calls) for name in limits}
    name, place = named(worst, limits)
    value, limit = (of[at(name, place)] for of in (worst, limits))
    if value <= limit:
        return []
    detail = f"{value:.3g} over the limit {limit:.3g} of class {klass}"
    output = fixture.output_name(place)
    return [Reason(code=CODES[name], trial=kind, detail=detail, klass=klass, value=value, limit=limit, output=output)]


def baseline(series: sampling.Series) -> Baseline:
    """Return the times of a torch baseline, ms: device, and latency (with launch)."""
    return Baseline(time_ms=intervals.summary(series.device_ms), latency_ms=_latency(series))


def _latency(series: sampling.Series) -> Summary | None:
    return intervals.summary(series.latency_ms) if series.latency_ms else None


def result(
    problem: Problem,
    implementation: Implementation,
    judged: Judged,
    series: sampling.AllSeries,
    timing: Timing,
    reached: Ceilings | None,
    trust: Trust,
) -> Verdict:
    """Return one entry of `results`; what is missing has its reason beside it."""
    entry = _with_kernels(_untimed(problem, implementation, judged, trust), implementation)
    entry = entry.model_copy(update={"measurement": reached is not None})
    ours, klass = series.get(implementation.name), judged.precision_class
    if klass is None or ours is None or not ours.gated:
        return entry.model_copy(update={"time_reason": NOT_TIMED if klass is None else timing.status})
    ratios = {name: _speedup(name, series[name], ours, timing) for name in timing.baseline_classes if name in series}
    order = CLASSES[problem.dtype]
    best = _best(order[: order.index(klass) + 1], timing, ratios)  # at least as precise as the solution
    times = intervals.summary(ours.device_ms)
    timed = {
        "time_ms": times,
        "latency_ms": _latency(ours),
        "labels": sorted({*entry.labels, *_labels_of_times(ratios, timing, reached)}),
        "speedup": {name: ratios[name] for name in PUBLISHED_BASELINES if name in ratios} | best,
        "speedup_all": ratios,
        "word": best["best_same_class"].word if best else None,
    }
    return _with_floor(problem, entry.model_copy(update=timed), klass, times.median, reached)


def _untimed(problem: Problem, implementation: Implementation, judged: Judged, trust: Trust) -> Verdict:
    """Return the entry of a solution without what a timing adds."""
    legacy = implementation.legacy
    kind = next((kind for kind in ("native", "perturbed", *legacy) if kind in legacy), "")
    confined = implementation.hello.get("confined")
    return Verdict(
        problem=problem.key,
        solution=implementation.name,
        verdict=judged.verdict,
        reasons=_placed(judged.reasons, implementation.where),
        precision_class=judged.precision_class,
        rel_l2=judged.rel_l2,
        legacy=legacy.get(kind, {}),
        distances={kind: list(map(_distances, of)) for kind, of in implementation.distances.items()},
        where=implementation.where,
        time_ms=None,
        latency_ms=None,
        speedup={},
        word=None,
        floor_ms=None,
        floor_fraction=None,
        own_kernel_share=None,
        findings=implementation.findings if judged.verdict == "correct" else [],
        labels=sorted({*labels_of(implementation.source), *_observed(implementation, judged.verdict)}),
        trust=trust,
        separation=_separation(trust, implementation.hello.get("uid")),
        confined=confined if isinstance(confined, dict) else {},
        call_bytes=implementation.call_bytes,
    )


def _distances(values: Values) -> Distances:
    """Return the distances as they are kept: with six digits, for they are most of a bundle."""
    values = rounded(values)
    each = [Distances.model_validate(one) for one in split(values)]
    largest = {name: values[name] for name in Distances.model_fields.keys() & values.keys()}
    return Distances.model_validate(largest | ({"outputs": each} if len(each) > 1 else {}))


def _placed(reasons: list[Reason], where: Where | None) -> list[Reason]:
    """Return the reasons, the first with the simplest input case at which it comes."""
    if where is None or not where.trial:
        return reasons
    return [reasons[0].model_copy(update={"trial": where.trial}), *reasons[1:]]


def _labels_of_times(ratios: Speedups, timing: Timing, reached: Ceilings | None) -> set[str]:
    timed = {ratio.inputs for ratio in ratios.values()}
    labels = {
        "input_dependent_time": reached is not None and "other" in timed,
        "stressed_inputs_timed": "stressed" in timed,
        "baselines_slower_beside_it": any(_slowed(name, timing) > 1 for name in ratios),
    }
    return {label for label, holds in labels.items() if holds}


def _slowed(name: str, timing: Timing) -> float:
    """Return how many times slower the host made a baseline beside the solutions; 1 if that is little."""
    ratio = timing.alone.get(name, 1.0)
    return ratio if ratio > 1 + sampling.HELD_UP else 1.0


def _speedup(name: str, base: sampling.Series, ours: sampling.Series, timing: Timing) -> Speedup:
    """Return the speedup over one baseline, with its word."""
    stressed = timing.inputs.startswith(tuple(STRESSED.values()))
    speedup = speedups.compare(base, ours, "stressed" if stressed else "published")
    assert speedup.at_least is not None
    speedup = speedup.model_copy(update={"at_least": speedup.at_least / _slowed(name, timing)})
    return speedup.model_copy(update={"word": speedups.word(speedup, speedups.noise(timing.aa))})


def _observed(implementation: Implementation, verdict: str) -> set[str]:
    """Return the labels that the judge observed. Two say nothing of a kernel that is wrong otherwise."""
    return implementation.observed if verdict == "correct" else implementation.observed - _OF_CORRECT


def _separation(trust: Trust, uid: object) -> Literal["user", "process", "none"]:
    """Return what separates judge and solution: none (one process), process, or user (a process of another user)."""
    if trust == "dev":
        return "none"
    return "process" if uid is None or uid == os.geteuid() else "user"


def _with_kernels(entry: Verdict, implementation: Implementation) -> Verdict:
    """Add the share of GPU time in the solution's own kernels, as the profiler in its process reported it."""
    kernels, reason = implementation.profile.get("kernels"), implementation.profile.get("reason", "")
    if not isinstance(kernels, list) or not kernels:
        return entry.model_copy(update={"own_kernel_share_reason": str(reason or "not profiled")[:200]})
    return entry.model_copy(update={"own_kernel_share": kernel_origins.share(kernels, implementation.source)})


def _best(allowed: tuple[str, ...], timing: Timing, ratio: Speedups) -> Speedups:
    """Return the speedup over the fastest torch baseline of the allowed classes."""
    same = {name: speedup for name, speedup in ratio.items() if timing.baseline_classes[name] in allowed}
    if not same:
        return {}
    best = min(same, key=lambda name: same[name].ratio)
    return {"best_same_class": same[best].model_copy(update={"baseline": best})}


def _with_floor(problem: Problem, entry: Verdict, klass: str, median_ms: float, reached: Ceilings | None) -> Verdict:
    """Add the floor. A time that no algorithm can reach rejects the solution."""
    if reached is None:
        return entry.model_copy(update={"floor_reason": "no GPU: a time on the CPU has no floor"})
    floor, impossible = (f(problem, klass, reached.to_json()) for f in (roofline.floor_ms, roofline.impossible_ms))
    if floor is None or impossible is None:
        return entry.model_copy(update={"floor_reason": "the work of this problem at this size is unknown"})
    entry = entry.model_copy(update={"floor_ms": floor, "floor_fraction": floor / median_ms})
    if median_ms >= impossible:
        return entry
    detail = f"{median_ms:.4g} ms is impossible: this GPU's measured ceilings allow {impossible:.4g} ms at best"
    reasons = [*entry.reasons, Reason(code="below_floor", detail=detail)]
    return entry.model_copy(update={"verdict": "rejected", "reasons": reasons})
