"""Medians, spreads and bootstrap intervals. Deterministic: the resampling is seeded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

RESAMPLES = 2000
SEED = 20251121


def _resample(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(SEED)
    return values[generator.integers(0, len(values), (RESAMPLES, len(values)))]


def summary(samples_ms: list[float]) -> dict[str, Any]:
    """median, its 95 % percentile-bootstrap interval, interquartile range and n, all in milliseconds.

    Raises ValueError without samples.
    """
    if not samples_ms:
        raise ValueError("no samples")
    values = np.asarray(samples_ms, dtype=np.float64)
    medians = np.median(_resample(values), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    first, third = np.percentile(values, [25, 75])
    return {
        "median": float(np.median(values)),
        "ci95": [float(low), float(high)],
        "iqr": float(third - first),
        "n": len(values),
    }


def paired_ratio(base_ms: list[float], ours_ms: list[float]) -> dict[str, Any]:
    """Speedup over paired blocks: exp of the mean log ratio, and its 95 % bootstrap interval over blocks.

    base_ms, ours_ms: one time (ms) a block, in the same order. Raises ValueError where they do not pair up.
    """
    if not base_ms or len(base_ms) != len(ours_ms):
        raise ValueError(f"{len(base_ms)} and {len(ours_ms)} blocks do not pair up")
    logs = np.log(np.asarray(base_ms) / np.asarray(ours_ms))
    means = _resample(logs).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"ratio": math.exp(logs.mean()), "ci95": [math.exp(low), math.exp(high)], "blocks": len(logs)}


def geometric_mean(ratios: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean of independent ratios with the interval that their own intervals imply.

    Each ratio's log is taken as normal with the width of its interval; the product's log adds in quadrature.
    """
    if not ratios:
        raise ValueError("no ratios")
    logs = [math.log(r["ratio"]) for r in ratios]
    widths = [(math.log(r["ci95"][1]) - math.log(r["ci95"][0])) / 2 for r in ratios]
    mean = sum(logs) / len(logs)
    half = math.sqrt(sum(w * w for w in widths)) / len(logs)
    return {"ratio": math.exp(mean), "ci95": [math.exp(mean - half), math.exp(mean + half)], "n": len(ratios)}
