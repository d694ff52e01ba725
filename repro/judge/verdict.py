"""From distances and times to a verdict. Words: correct incorrect rejected error timeout inconclusive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repro.judge import ceilings, stats, timing
from repro.judge.limits import CLASSES, class_of
from repro.judge.metric import GUARDS
from repro.problems import Problem

if TYPE_CHECKING:
    from repro.judge.evaluate import Subject

# What this release's judge separates; docs/judging.md says what it does not stop.
TRUST = "isolated"
# Baselines that the published speedups divide by, and their names in a result.
PUBLISHED_BASELINES = ("eager", "compile")


def baselines(plain: tuple[str, ...], dtype: str, classes: set[str]) -> list[str]:
    """The torch baselines to time: the plain ones with torch's default flags, and each again with the flags at which it
    may be as precise as the solutions are. Torch's defaults let cuDNN use TF32 and matmul not."""
    if dtype != "float32":
        return list(plain)
    flags = (["fp32"] if "fp32" in classes else []) + (["tf32"] if classes - {"fp32"} else [])
    return [*plain, *(f"{name}_{flag}" for flag in flags for name in plain)]


def judge(subject: Subject, fixture: dict[str, Any]) -> dict[str, Any]:
    """Verdict, class and reasons from a solution's trials. Every planned kind must have been judged."""
    reasons = list(subject.reasons)
    worst = {name: max((v[name] for t in subject.distances.values() for v in t), default=None) for name in GUARDS}
    facts = {"precision_class": None, "rel_l2": worst["rel_l2"], "distances": subject.distances}
    if subject.failed:
        return facts | {"verdict": subject.failed, "reasons": reasons}
    missing = [kind for kind in fixture["trials"] if kind not in subject.distances]
    if missing:
        detail = f"trials that did not run: {', '.join(missing)}"
        return facts | {"verdict": "inconclusive", "reasons": [*reasons, {"code": "trials_missing", "detail": detail}]}
    klass = class_of(subject.distances, fixture)
    if klass is None:
        return facts | {"verdict": "incorrect", "reasons": reasons + _excesses(subject, fixture)}
    return facts | {"verdict": "correct", "precision_class": klass, "reasons": reasons}


def _excesses(subject: Subject, fixture: dict[str, Any]) -> list[dict[str, Any]]:
    """One reason a trial kind: the guard that is furthest over the loosest class's limit."""
    loosest = CLASSES[fixture["dtype"]][-1]
    found = []
    for kind, values in subject.distances.items():
        limits = fixture["trials"][kind]["limits"][loosest]
        excess = {name: max(v[name] for v in values) / limits[name] for name in GUARDS}
        name = max(excess, key=lambda n: excess[n])
        if excess[name] > 1:
            value = max(v[name] for v in values)
            detail = f"{value:.3g} over the limit {limits[name]:.3g} of class {loosest}"
            found.append({"code": name, "trial": kind, "detail": detail})
    return found


def baseline(series: timing.Series) -> dict[str, Any]:
    """Times of one torch baseline."""
    return {"time_ms": stats.summary(series.flat), "host_ms": stats.summary([h for b in series.host_ms for h in b])}


def result(
    problem: Problem,
    subject: Subject,
    judged: dict[str, Any],
    series: dict[str, timing.Series],
    facts: dict[str, Any],
    reached: dict[str, float] | None,
    labels: list[str],
) -> dict[str, Any]:
    """One entry of `results` as design.md draws it; what is missing has its reason beside it."""
    legacy_kinds = [k for k in ("native", "perturbed") if k in subject.legacy][:1] or list(subject.legacy)[:1]
    entry: dict[str, Any] = {
        "problem": problem.key,
        "solution": subject.name,
        "verdict": judged["verdict"],
        "reasons": judged["reasons"],
        "precision_class": judged["precision_class"],
        "rel_l2": judged["rel_l2"],
        "legacy": subject.legacy[legacy_kinds[0]] if legacy_kinds else {},
        "distances": judged["distances"],
        "time_ms": None,
        "speedup": {},
        "floor_ms": None,
        "floor_fraction": None,
        "own_kernel_share": None,
        "own_kernel_share_reason": "not measured by this release",
        "labels": labels,
        "trust": TRUST,
        "measurement": reached is not None,
        "memory": subject.memory,
    }
    ours = series.get(subject.name)
    if ours is None or not ours.device_ms:
        why = facts.get("status", "not_timed") if judged["verdict"] == "correct" else "only correct solutions are timed"
        return entry | {"time_reason": why}
    entry["time_ms"] = stats.summary(ours.flat)
    entry["host_ms"] = stats.summary([h for b in ours.host_ms for h in b])
    names = [n for n in facts["baseline_classes"] if n in series]
    ratio = {n: stats.paired_ratio(series[n].blocks, ours.blocks) for n in names}
    entry["speedup"] = {n: ratio[n] for n in PUBLISHED_BASELINES if n in ratio} | _best(problem, judged, facts, ratio)
    _floor(problem, entry, reached)
    if timing.suspect(ours) and reached is not None:
        entry["reasons"] = [
            *entry["reasons"],
            {"code": "timing_suspect", "detail": "the host clock saw more time pass"},
        ]
    return entry


def _best(problem: Problem, judged: dict[str, Any], facts: dict[str, Any], ratio: dict[str, Any]) -> dict[str, Any]:
    """Speedup over the fastest torch baseline that is at least as precise as the solution."""
    order = CLASSES[problem.dtype]
    allowed = order[: order.index(judged["precision_class"]) + 1]
    same = {n: r for n, r in ratio.items() if facts["baseline_classes"][n] in allowed}
    if not same:
        return {}
    best = min(same, key=lambda n: same[n]["ratio"])
    return {"best_same_class": same[best] | {"baseline": best}}


def _floor(problem: Problem, entry: dict[str, Any], reached: dict[str, float] | None) -> None:
    """Adds the floor; a time under it by more than the ceilings' uncertainty rejects the solution."""
    if reached is None:
        entry["floor_reason"] = "no GPU: there is no floor for a time on the CPU"
        return
    floor = ceilings.floor_ms(problem, entry["precision_class"], reached)
    if floor is None:
        entry["floor_reason"] = "the work of this problem at this size is not known"
        return
    entry["floor_ms"] = floor
    entry["floor_fraction"] = floor / entry["time_ms"]["median"]
    if entry["floor_fraction"] * ceilings.IMPOSSIBLE > 1:
        entry["verdict"] = "rejected"
        detail = f"{entry['time_ms']['median']:.4g} ms is under {ceilings.IMPOSSIBLE} of the floor {floor:.4g} ms"
        entry["reasons"] = [*entry["reasons"], {"code": "below_floor", "detail": detail}]
