"""Medians, spreads and intervals of consecutive samples. Deterministic: the resampling is seeded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from repro.records.verdict import Ratio, Summary

_Array = np.ndarray[Any, Any]
_RESAMPLES = 2000
_SEED = 20251121
# With fewer samples, their autocorrelation and the bootstrap of their t say nothing.
_TELLING = 12
# A larger autocorrelation does not widen intervals further: such data is known to a few permille at best.
_MOST_CORRELATED = 0.6
# How far below its median a solution's time counts: 5 %, or _CAP_DEVIATIONS median deviations (3.4 standard deviations
# of a normal distribution).
_CAP, _CAP_DEVIATIONS = 0.05, 5.0


def _drawn(count: int) -> _Array:
    return np.random.default_rng(_SEED).integers(0, count, (_RESAMPLES, count))


def student(p: float, freedom: int) -> float:
    """Return the p-quantile of Student's t with `freedom` degrees of freedom."""
    from scipy import special  # a job that times nothing starts without it

    return float(special.stdtrit(freedom, p))


def inflation(values: _Array) -> float:
    """Return how much wider than for independent samples an interval of their mean must be.

    This is sqrt((1 + r) / (1 - r)) with r the lag-1 autocorrelation if it is positive, corrected for its bias in few
    samples.
    """
    count = len(values)
    around = values - values.mean()
    power = float(around @ around)
    if count < _TELLING or power <= 0:
        return 1.0
    seen = float(around[1:] @ around[:-1]) / power
    r = min(_MOST_CORRELATED, max(0.0, seen + (1 + 4 * max(0.0, seen)) / count))
    return math.sqrt((1 + r) / (1 - r))


def summary(samples_ms: list[float]) -> Summary:
    """Return median, its 95 % percentile-bootstrap interval, interquartile range and n, in milliseconds.

    The interval is widened if consecutive samples tend to lie on the same side of the median. Raises ValueError without
    samples.
    """
    if not samples_ms:
        raise ValueError("no samples")
    values = np.asarray(samples_ms, dtype=np.float64)
    middle = float(np.median(values))
    low, high = np.percentile(np.median(values[_drawn(len(values))], axis=1), [2.5, 97.5])
    wider = inflation(np.sign(values - middle))
    first, third = np.percentile(values, [25, 75])
    ci95 = [max(float(values.min()), middle - wider * (middle - low)), middle + wider * (high - middle)]
    return Summary(median=middle, ci95=ci95, iqr=float(third - first), n=len(values))


def mean_interval(values: _Array) -> tuple[float, float]:
    """Return the 95 % interval of a mean; for a single sample the point itself.

    Each side takes the wider of Student's and the studentised bootstrap's interval, times the inflation. Few samples
    need the former, heavy tails and skew the latter.
    """
    count, mean = len(values), float(values.mean())
    spread = float(values.std(ddof=1)) if count > 1 else 0.0
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return mean, mean
    below = above = student(0.975, count - 1)
    if count >= _TELLING:
        drawn = values[_drawn(count)]
        errors = drawn.std(axis=1, ddof=1)
        known = errors > 0
        t = (drawn.mean(axis=1)[known] - mean) / (errors[known] / math.sqrt(count))
        low, high = np.percentile(t, [2.5, 97.5])
        below, above = max(below, float(high)), max(above, float(-low))
    error = spread / math.sqrt(count) * inflation(values)
    return mean - below * error, mean + above * error


def paired_ratio(base_ms: list[float], ours_ms: list[float], *, capped: bool = False) -> Ratio:
    """Return the speedup over paired blocks: exp of the mean log ratio, and its 95 % interval (`mean_interval`).

    base_ms, ours_ms: one time (ms) a block, in the same order. Raises ValueError if they do not pair up. capped: our
    times count as at least the median less _CAP, or less _CAP_DEVIATIONS median deviations if that is more. So a few
    calls cannot make a speedup that the others do not have. The base's times are never changed, and few samples, whose
    deviation is unknown, are not capped.
    """
    if not base_ms or len(base_ms) != len(ours_ms):
        raise ValueError(f"{len(base_ms)} and {len(ours_ms)} blocks do not pair up")
    ours, under = np.asarray(ours_ms), 0
    if capped and len(ours) >= _TELLING:
        times = np.log(ours)
        middle = np.median(times)
        least = middle - max(_CAP, _CAP_DEVIATIONS * float(np.median(np.abs(times - middle))))
        if under := int((times < least).sum()):
            ours = np.maximum(ours, math.exp(least))
    logs = np.log(np.asarray(base_ms) / ours)
    low, high = mean_interval(logs)
    ratio = Ratio(ratio=math.exp(logs.mean()), ci95=[math.exp(low), math.exp(high)], blocks=len(logs))
    return ratio.model_copy(update={"capped_blocks": under}) if under else ratio


def geometric_mean(ratios: list[dict[str, Any]], weights: list[float] | None = None) -> dict[str, Any]:
    """Return the geometric mean of independent ratios, with the interval that their own intervals imply.

    Each ratio's log is taken as normal with the width of its interval; the logs' errors add in quadrature. Raises
    ValueError without ratios.
    """
    if not ratios:
        raise ValueError("no ratios")
    logs = [math.log(r["ratio"]) for r in ratios]
    widths = [(math.log(r["ci95"][1]) - math.log(r["ci95"][0])) / 2 for r in ratios]
    parts = np.asarray(weights or [1.0] * len(logs))
    parts /= parts.sum()
    mean = float(parts @ logs)
    half = math.sqrt(sum((parts * widths) ** 2))
    return {"ratio": math.exp(mean), "ci95": [math.exp(mean - half), math.exp(mean + half)], "n": len(ratios)}


def controls(ratios: list[Ratio]) -> tuple[int, float, float]:
    """Return of A/A controls how many intervals hold 1, the largest half width, and the furthest ratio from 1."""
    cover = sum(ratio.ci95[0] <= 1 <= ratio.ci95[1] for ratio in ratios)
    widest = max((ratio.ci95[1] - ratio.ci95[0]) / 2 for ratio in ratios)
    return cover, widest, max(abs(ratio.ratio - 1) for ratio in ratios)
