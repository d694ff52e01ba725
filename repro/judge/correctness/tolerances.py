"""Precision classes and their limits: how far from the fp64 reference an honest kernel of each class may be.

fp32: float32 operands and sums. tf32: 10-bit mantissa operands (TF32, or fp16 with float32 sums). bf16: bfloat16 end to
end. A problem in bf16 admits the bf16 class only; one in fp16 only fp16 end to end, whose limits are wider than tf32's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from repro.judge.correctness.distance import BIAS, DIFFER, EDIT, ZERO, of_output, rounded, score, split
from repro.judge.correctness.input_cases import PROBES
from repro.records.fixture import PUBLISHED, STRESSED, Fixture, Limited, Limits, TrialLimits
from repro.records.verdict import PrecisionClass

CLASSES: dict[str, tuple[PrecisionClass, ...]] = {
    "float32": ("fp32", "tf32", "bf16"), "bfloat16": ("bf16",), "float16": ("fp16",),
}  # fmt: skip
# Class -> distances of its honest kernel, or its limits.
ByClass = dict[str, Limits]
# Kind of input case -> a solution's distances on each of its draws.
Draws = dict[str, list[dict[str, float]]]

# Relative L2 limits: four times the honest error, but at least _FLOOR (honest kernels sum in different orders) and at
# most _CAP, unless the honest error itself is close to it. Over ten problems the largest honest errors were 3e-6 for
# fp32, 2.3e-3 for tf32 and fp16, and 1.9e-2 for bf16.
_FLOOR = {"fp32": 5e-6, "tf32": 1e-3, "fp16": 3e-3, "bf16": 8e-3}
_CAP = {"fp32": 2e-5, "tf32": 3e-3, "fp16": 1e-2, "bf16": 2e-2}
HEADROOM, MIN_HEADROOM = 4.0, 1.5
# A class that needs a wider limit on any kind of inputs, in relative L2 or as a share of integers, is not admitted.
WIDEST = 0.1
# The share of integers that may differ where no honest kernel's do. Where some honest kernel's do, a value between two
# integers is rounded to either: then a share of SOME may, or FEW elements if that is more.
EXACT, SOME, FEW = 1e-12, 1e-4, 1.5
# Cheats that every problem has. Each must fail on the inputs that are timed.
_BUILT_IN = ("zeros", "constant", "feature_mean", "stale")
# An output must follow its inputs: an error of this fraction of the distance between the outputs of two inputs is too
# much.
_SENSITIVITY = 0.35
# The lowest limits of `bias`. Tensor cores cut operands to TF32 instead of rounding them: each makes a product smaller
# by up to 2**-11 on average, and layers add up. A constant that is rounded to bf16 is off by at most 2**-9; two add up.
BIAS_FLOOR = {"fp32": 5e-6, "tf32": 3e-3, "fp16": 3e-3, "bf16": 5e-3}
# Max-norm and row guards measure extremes, which vary more between kernels than the average does.
_EXTREME_HEADROOM = 8.0
MIN_MARGIN = 1.5
# If a share of the reference is exactly 0 and every honest kernel leaves it so, a solution must do so too: garbage in a
# region of zeros hides in every average. In units of the rms of the other elements.
ZERO_LIMIT, MIN_ZERO_SHARE = 1e-6, 0.01
# An output must follow a change of a few inputs: a stale one has 1. Limited where honest kernels follow this closely.
EDIT_LIMIT, EDIT_HONEST = 0.5, 0.05
# On a probe a class has limits where the honest error of every looser class is at most this many times that one's cap.
_LOOSE = 4.0
# Inputs far from zero multiply rounding, in ways that differ between honest kernels: there fp32 has the limits of tf32,
# where the honest kernel of either class stays under a tenth of the lowest one.
OFFSET, HEAVY, EDITED, BANDED, _EXACT = "offset", "heavy", "edited", "banded", 0.1
# Draws over a class's limits that may be drawn again, if rounding decides their results: there the class's own Model is
# about as far off, for inputs off by up to a share of each element. A share a class: twice what it rounds operands by,
# of fp32 what long sums add up to.
CONTESTED = 2
ROUNDED = {"fp32": 2.0**-18, "tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-8}


def limits(honest: Limits, klass: str, sensitivity: float, integers: Limits | None = None) -> Limits:
    """Return the limits of one class for one output on one trial; none where they would be too wide.

    honest: the honest kernel's distances. sensitivity: relative L2 distance between the outputs of two independent
    inputs. integers: of integers that rounding decides, the least limits.
    """
    error = honest["rel_l2"]
    rel = max(_FLOOR[klass], min(HEADROOM * error, _CAP[klass]), MIN_HEADROOM * error)
    by_sensitivity = _SENSITIVITY * sensitivity
    if by_sensitivity > 0 and by_sensitivity >= MIN_HEADROOM * error:
        rel = min(rel, by_sensitivity)
    extremes = {name: _EXTREME_HEADROOM * max(honest[name], rel) for name in ("max", "row")}
    bias = max(BIAS_FLOOR[klass], HEADROOM * honest.get(BIAS, 0.0))  # the class's rounding, whatever its worst norm
    quantity = {"rel_l2": rel, BIAS: bias} | extremes if rel <= WIDEST else {}
    if integers and (share := max(integers[DIFFER], HEADROOM * honest[DIFFER])) <= WIDEST:
        return integers | {DIFFER: share}
    return quantity | {DIFFER: EXACT} if DIFFER in honest and not integers else quantity


def rounding(honest: ByClass, size: float) -> ByClass:
    """Return class -> share of integers that differ, and the largest difference, where rounding decides them.

    size: root mean square of the output. A class of which too many differ has limits of a quantity, and is left out.
    """
    few = {klass: values for klass, values in honest.items() if 0 < values.get(DIFFER, 0.0) <= WIDEST / HEADROOM}
    return {klass: {DIFFER: values[DIFFER], "max": values["max"] * size} for klass, values in few.items()}


def integers(kind: str, honest: ByClass, elements: int, published: ByClass, size: float) -> ByClass:
    """Return, for each class, the least limits of integers that rounding decides: where some honest kernel's differ,
    few of every class's may, by no more than in the worst class.

    published: `rounding` of published inputs; size: the smallest root mean square of this trial's output. A class whose
    honest kernel differs there may differ here, though the few draws of this trial do not show it: in as large a share,
    or in few with heavy tails, which make nearly all integers small. Not where an edit has no limit of its own: among
    integers that may differ it would not be seen.
    """
    unseen = kind == EDITED and not any(EDIT in values for values in honest.values())
    there = {} if unseen or not size else published
    here = any(values.get(DIFFER) for values in honest.values())
    most = max(values["max"] for values in honest.values()) if here else 0.0
    least = {}
    for klass in honest if here else there:
        known = there.get(klass, {DIFFER: 0.0, "max": 0.0})
        share = 0.0 if kind == HEAVY else HEADROOM * known[DIFFER]
        step = known["max"] / (size or 1.0)
        least[klass] = {DIFFER: max(SOME, FEW / max(1, elements), share), "max": MIN_HEADROOM * max(most, step)}
    return least


def probe_limits(honest: ByClass, least: ByClass) -> ByClass:
    """Return the limits of every class on a probe.

    honest: class -> distances, the most precise class first. least: `integers`. A class has no limits where its honest
    kernel's error is over the class's cap or does not follow an edit. Nor has it any where a looser class's error is
    far over its own: there, results hang on single comparisons, such as which logit is the largest.
    """
    by_class: ByClass = {}
    for klass, values in honest.items():
        looser = list(honest)[list(honest).index(klass) + 1 :]
        bounded = values["rel_l2"] <= _CAP[klass] and values.get(EDIT, 0.0) <= EDIT_HONEST
        steady = all(honest[other]["rel_l2"] <= _LOOSE * _CAP[other] for other in looser)
        own = limits(values, klass, 0.0, least.get(klass)) if bounded and steady else {}
        by_class[klass] = own | ({EDIT: EDIT_LIMIT} if own and EDIT in values else {})
    return by_class


def offset_limits(honest: ByClass, least: ByClass) -> ByClass:
    """Return the limits of every class on inputs far from zero: fp32 has those of tf32, because rounding grows there.

    honest: class -> distances. A class has none where its honest kernel is not far more precise than they are.
    """
    if any(math.isinf(values["rel_l2"]) for values in honest.values()):  # of an output in 16 bits, say
        return {klass: {} for klass in honest}
    of = {klass: "tf32" if klass == "fp32" else klass for klass in honest}
    most = {klass: _EXACT * _FLOOR[of[klass]] for klass in honest} | {klass: _CAP[klass] for klass in ("fp16", "bf16")}
    return {
        klass: limits(values, of[klass], 0.0, least.get(klass)) if values["rel_l2"] <= most[klass] else {}
        for klass, values in honest.items()
    }


def heavy_limits(honest: ByClass, least: ByClass) -> ByClass:
    """Return the limits of every class on heavy tails: the widest that it has, a wider one where its honest kernel's
    error is not well under that, and none of single elements, rows or a bias, as errors have heavy tails too.

    A class has none where the wider one would be too wide.
    """
    by_class: ByClass = {}
    for klass, own in probe_limits(honest, least).items():
        error = honest[klass]["rel_l2"]
        rel = _CAP[klass] if HEADROOM * error <= _CAP[klass] else _EXTREME_HEADROOM * error
        kept = {name: limit for name, limit in own.items() if name not in ("max", "row", BIAS)}
        by_class[klass] = (kept | {"rel_l2": rel} if "rel_l2" in kept else own) if rel <= WIDEST else {}
    return by_class


def zero_limit(honest: ByClass, share: float) -> Limits:
    """Return the limit on zeros that all classes of a trial share, or none.

    honest: class -> distances. share: fraction of the reference's elements that are exactly 0.
    """
    if share >= MIN_ZERO_SHARE and all(ZERO in v and v[ZERO] <= ZERO_LIMIT for v in honest.values()):
        return {ZERO: ZERO_LIMIT}
    return {}


def _strengths(trials: Iterable[TrialLimits], klass: str) -> dict[str, float]:
    """Return the largest score of each cheat by one class's limits.

    Of several outputs each must show a cheat by itself, unless it never depends on the inputs.
    """
    found: dict[str, float] = {}
    for trial in trials:
        limits = split(trial.limits[klass])
        for name, values in trial.cheats.items():
            for place, own in enumerate(limits):
                where = f" in output {place + 1}" if len(limits) > 1 else ""
                strength = score(of_output(values, place) if where else values, own)
                found[name + where] = max(found.get(name + where, 0.0), strength)
    blind = {name.removeprefix("stale") for name in found if name.startswith("stale in output") and not found[name]}
    seen = {name: value for name, value in found.items() if name[name.find(" in output") :] not in blind}
    return seen or found


def _margin(measured: dict[str, TrialLimits], klass: str) -> tuple[str, float, float, float]:
    """Return the best cheat by one class's limits, its score, the worst honest score, and their ratio."""
    limited = [trial for trial in measured.values() if trial.limits[klass]]
    strength = _strengths(limited, klass)
    honest = max((score(t.honest[klass], t.limits[klass]) for t in limited), default=math.inf)
    best = min(sorted(strength), key=lambda name: strength[name], default="")
    return best, strength.get(best, 0.0), honest, strength.get(best, 0.0) / max(honest, 1 / HEADROOM)


def _too_wide(measured: dict[str, TrialLimits], klass: str) -> str:
    """Return why a class has no limits on some kind of inputs, or ""."""
    for kind, trial in measured.items():
        if kind not in PROBES and not trial.limits[klass]:
            error = trial.honest[klass]["rel_l2"]
            what = f"an honest kernel's error of {error:.2g}" if error < math.inf else f"overflow of {klass}"
            return f"{what} on {kind} inputs leaves no limit under {WIDEST}"
    return ""


def _timed(measured: dict[str, TrialLimits], classes: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Return the kind of inputs that is timed, and class -> why the class cannot tell a cheat there.

    These are the published inputs, or, if no class can tell a cheat there, the stressed ones if a class can there.
    """
    published = next((kind for kind in PUBLISHED if kind in measured), "")
    found = {
        kind: _passed(measured[kind], classes) for kind in (published, STRESSED.get(published)) if kind in measured
    }
    timed = next((kind for kind, passed in found.items() if len(passed) < len(classes)), published)
    passed = found.get(timed, {})
    return timed, {k: f"the cheat {name!r} passes on the inputs that are timed" for k, name in passed.items()}


def _passed(trial: TrialLimits, classes: tuple[str, ...]) -> dict[str, str]:
    """Return class -> the first built-in cheat that passes."""
    return {
        klass: name
        for klass in classes
        for name in reversed(_BUILT_IN)
        if _passes(trial.cheats.get(name, {}), trial.limits[klass])
    }


def _passes(cheat: dict[str, Any], limits: Limits) -> bool:
    """Return whether a cheat that answers every output is within limits."""
    return score(cheat, limits) <= 1 and len(split(cheat)) == len(split(limits))


@dataclass(frozen=True)
class _Separation:
    """How far the best cheat is from the worst honest kernel, as fields of a fixture."""

    best_cheat: str
    best_cheat_score: float
    worst_honest_score: float
    margin: float
    margins: dict[str, float]
    refused_classes: dict[str, str]
    refused: str
    timed: str


def separation(measured: dict[str, TrialLimits], classes: tuple[str, ...]) -> _Separation:
    """Return how far cheats are from honest kernels, and the classes that cannot tell the two apart.

    measured: by deciding trial kind; a cheat counts on the trials where it was measured. The margin counts an honest
    kernel as at least a quarter of its limit, so that a problem with an exact answer has a finite margin. It is that of
    the loosest class that is admitted.
    """
    margin_of = {klass: _margin(measured, klass) for klass in classes}
    refused = {}
    timed, untold = _timed(measured, classes)
    for klass, (best, strength, _, margin) in margin_of.items():
        wide = _too_wide(measured, klass)
        if wide or strength <= 1:
            refused[klass] = wide or f"the cheat {best!r} passes every trial"
        elif klass in untold:
            refused[klass] = untold[klass]
        elif margin < MIN_MARGIN:
            refused[klass] = (
                f"margin {margin:.2f} between the cheat {best!r} and an honest kernel is under {MIN_MARGIN}"
            )
    admitted = [klass for klass in classes if klass not in refused]
    best, strength, honest, margin = margin_of[(admitted or classes)[-1]]
    margins = rounded({klass: own[3] for klass, own in margin_of.items()})
    reason = "" if admitted else refused[classes[-1]]
    return _Separation(best, strength, honest, margin, margins, refused, reason, timed)


def class_of(
    distances: Draws, fixture: Fixture, *, refused: bool = False, trusted: bool = False
) -> PrecisionClass | None:
    """Return the most precise class whose limits every deciding trial meets, or None. Other kinds are ignored.

    A solution that is precise wherever every class has limits does not fall back to a class that has none: there it
    must meet the widest cap. refused: also a class that the fixture does not admit; where it has no limits, a solution
    that is not trusted must meet the one that the class needs.
    """
    for klass in CLASSES[fixture.dtype]:
        if _missed(distances, fixture, klass, refused, trusted) == []:
            return klass
    return None


@dataclass(frozen=True)
class Missed:
    """A draw on which a solution is over a class's limits: its kind, its place among the draws of this kind, and the
    solution's distances."""

    klass: str
    kind: str
    place: int
    limits: Limits
    values: Limits


def contested(distances: Draws, fixture: Fixture) -> Iterator[list[Missed]]:
    """Yield for each class, from the most precise on to the one that a solution has, the draws on which it is over that
    class's limits, where these are few: rounding may decide their results."""
    for klass in CLASSES[fixture.dtype]:
        missed = _missed(distances, fixture, klass)
        if missed == []:
            return
        if missed and len(missed) <= CONTESTED:
            yield missed


def _missed(
    distances: Draws,
    fixture: Fixture,
    klass: str,
    refused: bool = False,
    trusted: bool = False,
) -> list[Missed] | None:
    """Return the draws on which a solution is over a class's limits; None for a class that is not judged, or if no draw
    decides."""
    deciding = {kind: values for kind, values in distances.items() if kind in fixture.trials}
    lacking = any(klass not in trial.limits for trial in fixture.trials.values())  # its device could not run the class
    if not deciding or lacking or (klass in fixture.refused_classes and not refused):
        return None
    capped, missed = _capped(deciding, fixture), []
    for kind, draws in deciding.items():
        limits = fixture.trials[kind].limits[klass] or _unlimited(fixture.trials[kind], klass, kind in capped, trusted)
        over = [(i, v) for i, v in enumerate(draws) if limits and not score(v, limits) <= 1]
        missed += [Missed(klass, kind, i, limits, v) for i, v in over]
    return missed


def by_rounding(missed: Missed, honest: Limits) -> bool:
    """Return whether rounding explains a solution's distances on a draw.

    honest: the largest ones of the class's Model there, for inputs that are off by up to the share of the class.
    """
    values = missed.values
    over = [name for name, limit in missed.limits.items() if name in values and not values[name] <= limit]
    return bool(over) and all(values[name] <= MIN_HEADROOM * honest.get(name, 0.0) for name in over)


def _unlimited(trial: Limited, klass: str, capped: bool, trusted: bool) -> Limits:
    """Return the limit of a class without limits on a trial: the cap of a precise solution, or what the class needs."""
    if capped:
        return {"rel_l2": _CAP["bf16"]}
    return {"rel_l2": trial.needed[klass]} if klass in trial.needed and not trusted else {}


def _capped(deciding: Draws, fixture: Fixture) -> set[str]:
    """Return the kinds of trials on which a solution must meet the widest cap if its class has no limits there.

    These are those of a solution that is of a class more precise than the loosest admitted one wherever all have
    limits: all kinds if that is the most precise class, else those on which that class has limits, if some trial tells
    it from the loosest.
    """
    admitted = [klass for klass in CLASSES[fixture.dtype] if klass not in fixture.refused_classes]
    limits = {kind: fixture.trials[kind].limits for kind in deciding}
    common = [kind for kind, own in limits.items() if all(own.get(klass) for klass in admitted)]
    for klass in admitted[:-1] if common else []:
        if all(score(v, limits[kind][klass]) <= 1 for kind in common for v in deciding[kind]):
            first = klass == admitted[0]
            told = first or any(_told_apart(limits[kind], klass, admitted[-1]) for kind in common)
            return {kind for kind, own in limits.items() if told and (first or own.get(klass))}
    return set()


def _told_apart(limits: ByClass, klass: str, loosest: str) -> bool:
    """Return whether the honest kernel of the loosest class is over the limits of another one."""
    pairs = zip(split(limits[klass]), split(limits[loosest]), strict=True)
    norms = [(own.get("rel_l2", math.inf), wide.get("rel_l2", 0.0)) for own, wide in pairs]
    return any(wide > max(_FLOOR[loosest], HEADROOM * own) for own, wide in norms)  # wide is HEADROOM of its error
