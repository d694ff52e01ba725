"""Statistics of a study's speedups: means, a paired difference with its uncertainty, and the power of the study.

Everything is in logs of speedups. Problems are the sample. Repeats of one problem only show its noise, so they are
averaged first and resampled within their problem.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from repro.judge.timing.intervals import student

RESAMPLES = 10_000
SEED = 20251121
# Up to this many problems all sign patterns are counted: 2 ** 12 of them.
EXACT = 12
SIGN_FLIPS = 100_000
FAST_P = (1.0, 1.5, 2.0)
POWER, LEVEL = 0.8, 0.05
# Ratios for which the needed number of problems is reported: the published gain, and a smaller one.
ASKED = (1.10, 1.17)
ROUNDING = 1e-9


@dataclass(frozen=True)
class Observation:
    """One solution of one problem. speedup: baseline over solution; None without a correct solution."""

    problem: str
    arm: str
    repeat: int
    speedup: float | None

    @property
    def log(self) -> float:
        """Return its log speedup. A failure leaves the reference in place, which is 1x."""
        return math.log(self.speedup) if self.speedup else 0.0


def geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean, or None without values. Raises ValueError for one that is not positive."""
    return statistics.geometric_mean(values) if values else None


def by_problem(observations: list[Observation], arm: str) -> dict[str, list[Observation]]:
    """Return the observations of an arm by problem, in their order."""
    found: dict[str, list[Observation]] = {}
    for each in observations:
        if each.arm == arm:
            found.setdefault(each.problem, []).append(each)
    return found


def arm(observations: list[Observation], name: str) -> dict[str, Any]:
    """Return the means of an arm.

    {"problems": {problem: {"fail_is_1", "correct_only", "correct", "n"}}, "fail_is_1", "correct_only", "correct", "n",
    "fast_p": {p: share}}. Overall means weigh problems equally, whatever their repeats.
    """
    problems: dict[str, Any] = {}
    for problem, each in by_problem(observations, name).items():
        correct = [o.speedup for o in each if o.speedup]
        problems[problem] = {
            "fail_is_1": math.exp(sum(o.log for o in each) / len(each)),
            "correct_only": geometric_mean(correct),
            "correct": len(correct),
            "n": len(each),
        }
    return {
        "problems": problems,
        "fail_is_1": geometric_mean([p["fail_is_1"] for p in problems.values()]),
        "correct_only": geometric_mean([p["correct_only"] for p in problems.values() if p["correct_only"]]),
        "correct": sum(p["correct"] for p in problems.values()),
        "n": sum(p["n"] for p in problems.values()),
        "fast_p": {f"{p:g}": fast_p(observations, name, p) for p in FAST_P},
    }


def fast_p(observations: list[Observation], name: str, p: float) -> float | None:
    """Return the share of problems solved correctly and more than p times as fast as the baseline; a failure is 0."""
    shares = [sum(1 for o in each if o.speedup and o.speedup > p) / len(each)
              for each in by_problem(observations, name).values()]  # fmt: skip
    return sum(shares) / len(shares) if shares else None


def paired(observations: list[Observation], base: str, other: str) -> dict[str, Any] | None:
    """Compare `other` with `base` on the problems that both have; None if they share no problem.

    The result holds the ratio of geometric means (a failure is 1x), its 95 % intervals, p-value and power. ci95
    resamples problems and repeats within them; t_ci95 takes the problems' differences as normal. Neither covers what
    all jobs share: one machine, one week, one model.
    """
    left, right = by_problem(observations, base), by_problem(observations, other)
    shared = [problem for problem in left if problem in right]
    if not shared:
        return None
    pairs = [([o.log for o in left[p]], [o.log for o in right[p]]) for p in shared]
    differences = [sum(b) / len(b) - sum(a) / len(a) for a, b in pairs]
    mean, spread = float(np.mean(differences)), _deviation(differences)
    found: dict[str, Any] = {
        "base": base,
        "other": other,
        "n": len(shared),
        "ratio": math.exp(mean),
        "differences": dict(zip(shared, map(math.exp, differences), strict=True)),
        "up": sum(d > ROUNDING for d in differences),
        "down": sum(d < -ROUNDING for d in differences),
        "ci95": bootstrap(pairs),
        "t_ci95": None,
        "sign_flip": sign_flip(differences),
        "sd": spread,
        "detectable": None,
        "needed": {},
    }
    if spread is not None:
        half = student(1 - LEVEL / 2, len(shared) - 1) * spread / math.sqrt(len(shared))
        found["t_ci95"] = [math.exp(mean - half), math.exp(mean + half)]
        found["detectable"] = detectable(spread, len(shared))
        found["needed"] = {f"{ratio:.2f}": needed(spread, ratio) for ratio in ASKED}
    return found


def _deviation(values: list[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def bootstrap(pairs: list[tuple[list[float], list[float]]]) -> list[float] | None:
    """Return the 95 % interval of exp(mean difference), by resampling problems and the repeats within each.

    pairs: log speedups of both arms, one pair for each problem. The percentiles are moved outwards, so that an interval
    over few problems is as wide as Student's (Hesterberg 2015, expanded percentile interval). None for fewer than two
    problems.
    """
    n = len(pairs)
    if n < 2:
        return None
    generator = np.random.default_rng(SEED)
    # Every place of a resample may hold any problem, each time with repeats of its own.
    table = np.empty((n, RESAMPLES, n))
    for at, (base, other) in enumerate(pairs):
        ours, theirs = (
            np.asarray(logs)[generator.integers(0, len(logs), (RESAMPLES, n, len(logs)))].mean(2)
            for logs in (base, other)
        )
        table[at] = theirs - ours
    chosen = generator.integers(0, n, (RESAMPLES, n))
    means = table[chosen, np.arange(RESAMPLES)[:, None], np.arange(n)[None, :]].mean(1)
    tail = special.ndtr(-student(1 - LEVEL / 2, n - 1) * math.sqrt(n / (n - 1)))
    low, high = np.percentile(means, [100 * tail, 100 * (1 - tail)])
    return [math.exp(low), math.exp(high)]


def sign_flip(differences: list[float]) -> dict[str, Any]:
    """Return {"p", "exact"}: the two-sided p-value of the mean if the sign of each difference were random."""
    values = np.asarray(differences)
    seen = abs(values.sum()) - ROUNDING
    if len(differences) <= EXACT:
        signs = np.asarray(list(itertools.product((-1, 1), repeat=len(differences))))
        return {"p": float(np.mean(np.abs(signs @ values) >= seen)), "exact": True}
    signs = np.random.default_rng(SEED).choice((-1, 1), (SIGN_FLIPS, len(differences)))
    extreme = int(np.sum(np.abs(signs @ values) >= seen))
    return {"p": (extreme + 1) / (SIGN_FLIPS + 1), "exact": False}


def detectable(deviation: float, n: int) -> float:
    """Return the ratio that n problems with this spread would find at the 5 % level with a chance of 80 %."""
    quantiles = student(1 - LEVEL / 2, n - 1) + student(POWER, n - 1)
    return math.exp(quantiles * deviation / math.sqrt(n))


def needed(deviation: float, ratio: float) -> int:
    """Return how many problems would find `ratio` at the 5 % level with a chance of 80 %."""
    quantiles = float(special.ndtri(1 - LEVEL / 2) + special.ndtri(POWER))
    return math.ceil((quantiles * deviation / math.log(ratio)) ** 2)
