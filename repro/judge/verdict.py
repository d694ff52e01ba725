"""Makes verdicts from distances and times. Words: correct incorrect rejected error timeout inconclusive
unjudgeable.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from repro.judge.correctness.distance import CODES, GUARDS, named
from repro.judge.correctness.tolerances import CLASSES, class_of
from repro.judge.source import provenance
from repro.judge.timing import intervals, roofline, sampling, speedups
from repro.problems.catalogue import Problem

if TYPE_CHECKING:
    from repro.judge.implementation import Implementation

# Baselines of the published speedups, by their names in a result.
PUBLISHED_BASELINES = ("eager", "compile")
# Facts that a worker reports of itself and that decide nothing: their names, and the most characters kept of a text.
PEAK = ("allocated", "reserved")
MODES = ("grad", "cudnn_tf32", "matmul_tf32", "cudnn_benchmark", "default_dtype", "allocator", "threads")
SAID_CHARS = 400
UNJUDGEABLE = "unjudgeable"
NOT_TIMED = "only correct solutions are timed"


def judge(implementation: Implementation, fixture: dict[str, Any]) -> dict[str, Any]:
    """Return verdict, class and reasons from a solution's trials. Every planned kind must have been judged."""
    reasons = list(implementation.reasons)
    worst = {
        name: max((v[name] for t in implementation.distances.values() for v in t), default=None) for name in GUARDS
    }
    facts = {"precision_class": None, "rel_l2": worst["rel_l2"], "distances": implementation.distances}
    if implementation.failed:
        return facts | {"verdict": implementation.failed, "reasons": reasons}
    missing = [kind for kind in fixture["trials"] if kind not in implementation.distances]
    if missing:
        detail = f"trials that did not run: {', '.join(missing)}"
        return facts | {"verdict": "inconclusive", "reasons": [*reasons, {"code": "trials_missing", "detail": detail}]}
    klass = class_of(implementation.distances, fixture)
    if klass is None and (only := class_of(implementation.distances, fixture, refused=True)):
        detail = f"its error fits class {only} alone, in which {fixture['refused_classes'][only]}"
        return facts | {"verdict": UNJUDGEABLE, "reasons": [*reasons, {"code": "class_refused", "detail": detail}]}
    if klass is None:
        return facts | {"verdict": "incorrect", "reasons": reasons + _excesses(implementation, fixture)}
    return facts | {"verdict": "correct", "precision_class": klass, "reasons": reasons}


def unjudgeable(fixture: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on any solution of a problem whose fixture is refused, with the proof in it."""
    found = fixture.get("degenerate", {})
    detail = "; ".join(part for part in (fixture["refused"], found.get("proof", "")) if part)
    reasons = [{"code": "degenerate", "detail": detail}]
    return {"verdict": UNJUDGEABLE, "reasons": reasons, "precision_class": None, "rel_l2": None, "distances": {}}


def _excesses(implementation: Implementation, fixture: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a reason for each deciding trial kind: the guard that exceeds the loosest class's limit most."""
    found = []
    for kind, values in implementation.distances.items():
        if kind not in fixture["trials"]:
            continue
        every = fixture["trials"][kind]["limits"]
        limited = [klass for klass in CLASSES[fixture["dtype"]] if every.get(klass)]
        if not limited:
            continue
        loosest = limited[-1]
        limits = every[loosest]
        worst = {name: max(v.get(name, 0.0) for v in values) for name in limits}
        name = named(worst, limits)
        if worst[name] > limits[name] or math.isnan(worst[name]):
            detail = f"{worst[name]:.3g} over the limit {limits[name]:.3g} of class {loosest}"
            numbers = {"value": worst[name], "limit": limits[name], "class": loosest}
            found.append({"code": CODES[name], "trial": kind, "detail": detail, **numbers})
    return found


def baseline(series: sampling.Series) -> dict[str, Any]:
    """Return the times of a torch baseline, ms: device (cold), latency (cold, with launch) and hot."""
    return {"time_ms": intervals.summary(series.device_ms)} | _others(series)


def _others(series: sampling.Series) -> dict[str, Any]:
    latency = intervals.summary(series.latency_ms) if series.latency_ms else None
    return {"latency_ms": latency, "hot_ms": series.hot_ms}


def result(
    problem: Problem,
    implementation: Implementation,
    judged: dict[str, Any],
    series: dict[str, sampling.Series],
    facts: dict[str, Any],
    reached: dict[str, Any] | None,
    trust: str,
) -> dict[str, Any]:
    """Return one entry of `results`; what is missing has its reason beside it."""
    legacy_kinds = [k for k in ("native", "perturbed") if k in implementation.legacy][:1] or list(
        implementation.legacy
    )[:1]
    uid = implementation.hello.get("uid")
    entry: dict[str, Any] = {
        "problem": problem.key,
        "solution": implementation.name,
        "verdict": judged["verdict"],
        "reasons": judged["reasons"],
        "precision_class": judged["precision_class"],
        "rel_l2": judged["rel_l2"],
        "legacy": implementation.legacy[legacy_kinds[0]] if legacy_kinds else {},
        "distances": judged["distances"],
        "neighbour": implementation.neighbour,
        "time_ms": None,
        "latency_ms": None,
        "hot_ms": None,
        "speedup": {},
        "word": None,
        "floor_ms": None,
        "floor_fraction": None,
        "own_kernel_share": None,
        "findings": implementation.findings,
        "labels": sorted({*provenance.labels(implementation.source), *_observed(implementation, judged["verdict"])}),
        "trust": trust,
        "separation": _separation(trust, uid),
        "confined": implementation.hello.get("confined", {}),
        "measurement": reached is not None,
        "memory": {n: _said(told, PEAK) if n == "solution" else told for n, told in implementation.memory.items()},
    } | _provenance(implementation)
    ours = series.get(implementation.name)
    if judged["verdict"] != "correct" or ours is None or not ours.gated:
        return entry | {"time_reason": facts["status"] if judged["verdict"] == "correct" else NOT_TIMED}
    entry["time_ms"] = intervals.summary(ours.device_ms)
    entry |= _others(ours)
    entry["modes"] = [_said(modes, MODES) for modes in implementation.modes]
    names = [n for n in facts["baseline_classes"] if n in series]
    ratio = {n: speedups.compare(series[n], ours) for n in names}
    if any(found["inputs"] == "other" for found in ratio.values()):
        entry["labels"] = sorted({*entry["labels"], "input_dependent_time"})
    alone = facts.get("alone", {})
    if any(alone.get(name, 1.0) > 1 + sampling.HELD_UP for name in ratio):
        entry["labels"] = sorted({*entry["labels"], "baselines_slower_beside_it"})
    for name, found in ratio.items():
        if alone.get(name, 1.0) > 1 + sampling.HELD_UP:  # slowed by the host, else the solution would be rejected
            found["at_least"] /= alone[name]
        found["word"] = speedups.word(found, speedups.noise(facts.get("aa")))
        if series[name].latency_ms and ours.latency_ms:
            terms = [speedups.host_term(series[name]), speedups.host_term(ours, trusted=False)]
            found["latency"] = speedups.speedup(series[name].latency_ms, ours.latency_ms, terms)
    best = _best(problem, judged, facts, ratio)
    entry["speedup"] = {n: ratio[n] for n in PUBLISHED_BASELINES if n in ratio} | best
    entry["speedup_all"] = ratio
    entry["word"] = best["best_same_class"]["word"] if best else None
    _floor(problem, entry, reached)
    return entry


def _observed(implementation: Implementation, verdict: str) -> set[str]:
    """Return the labels that the judge observed. A kernel that is wrong everywhere is not made for one shape."""
    return implementation.observed if verdict == "correct" else implementation.observed - {"shape_specialised"}


def _said(told: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the plain values of these names."""
    known = [(name, told[name]) for name in names if name in told] if isinstance(told, dict) else []
    plain = {name: value for name, value in known if value is None or isinstance(value, int | float | str)}
    return {name: value[:SAID_CHARS] if isinstance(value, str) else value for name, value in plain.items()}


def _separation(trust: str, uid: int | None) -> str:
    """Return what separates judge and solution: none (one process), process, or user (a process of another user)."""
    if trust == "dev":
        return "none"
    return "process" if uid is None or uid == os.geteuid() else "user"


def _provenance(implementation: Implementation) -> dict[str, Any]:
    """Return the share of GPU time in the solution's own kernels, as the profiler in its process reported it."""
    kernels, reason = implementation.profile.get("kernels"), implementation.profile.get("reason", "")
    if not isinstance(kernels, list) or not kernels:
        return {"own_kernel_share": None, "own_kernel_share_reason": str(reason or "not profiled")[:200]}
    shares = provenance.share(kernels, implementation.source)
    return {"own_kernel_share": shares["own"], "kernel_shares": shares}


def _best(problem: Problem, judged: dict[str, Any], facts: dict[str, Any], ratio: dict[str, Any]) -> dict[str, Any]:
    """Return the speedup over the fastest torch baseline that is at least as precise as the solution."""
    order = CLASSES[problem.dtype]
    allowed = order[: order.index(judged["precision_class"]) + 1]
    same = {n: r for n, r in ratio.items() if facts["baseline_classes"][n] in allowed}
    if not same:
        return {}
    best = min(same, key=lambda n: same[n]["ratio"])
    return {"best_same_class": same[best] | {"baseline": best}}


def _floor(problem: Problem, entry: dict[str, Any], reached: dict[str, Any] | None) -> None:
    """Add the floor. A time that no algorithm can reach rejects the solution."""
    if reached is None:
        entry["floor_reason"] = "no GPU: a time on the CPU has no floor"
        return
    floor = roofline.floor_ms(problem, entry["precision_class"], reached)
    impossible = roofline.impossible_ms(problem, entry["precision_class"], reached)
    if floor is None or impossible is None:
        entry["floor_reason"] = "the work of this problem at this size is unknown"
        return
    median = entry["time_ms"]["median"]
    entry["floor_ms"] = floor
    entry["floor_fraction"] = floor / median
    if median < impossible:
        entry["verdict"] = "rejected"
        detail = f"{median:.4g} ms is impossible: this GPU's measured ceilings allow {impossible:.4g} ms at best"
        entry["reasons"] = [*entry["reasons"], {"code": "below_floor", "detail": detail}]
