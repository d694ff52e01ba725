"""Statistics of a study's speedups: means, a paired difference with its uncertainty, and the power of the study.

Everything is in logs of speedups. Problems are the sample. Repeats of one problem only show its noise, so they are
averaged first.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from repro.judge.timing.intervals import student

_RESAMPLES = 10_000
_SEED = 20251121
# All sign patterns are counted where there are no more than this, else this number of them is drawn.
_SIGN_FLIPS = 100_000
FAST_P = (1.0, 1.5, 2.0)
_POWER, _LEVEL = 0.8, 0.05
_ROUNDING = 1e-9


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


class Speeds(NamedTuple):
    """Geometric means of speedups: with a failure as 1x, and of correct solutions alone; how many are correct, of n."""

    fail_is_1: float | None = None
    correct_only: float | None = None
    correct: int = 0
    n: int | None = None


@dataclass(frozen=True)
class ArmSpeeds:
    """The speedups of an arm. Overall means weigh problems equally, whatever their repeats.

    fast_p: p -> share of problems that are correct and more than p times as fast as the baseline; a failure is 0.
    """

    problems: dict[str, Speeds] = field(default_factory=dict)
    overall: Speeds = Speeds()
    fast_p: dict[float, float | None] = field(default_factory=dict)


class SignFlip(NamedTuple):
    """A two-sided p-value. exact: whether all signs were counted."""

    p: float
    exact: bool


@dataclass(frozen=True)
class Paired:
    """Two arms on the problems that both have.

    ratio: of geometric means (a failure is 1x). ci95 resamples problems; t_ci95 takes the
    problems' differences as normal. Neither covers what all jobs share: one machine, one week, one model. differences:
    problem -> ratio; up, down: how many are over and under 1. sd: of the logs; detectable: ratio that 80 % of such
    studies would find.
    """

    base: str
    other: str
    n: int
    ratio: float
    differences: dict[str, float]
    up: int
    down: int
    ci95: list[float] | None
    sign_flip: SignFlip
    t_ci95: list[float] | None = None
    sd: float | None = None
    detectable: float | None = None


def _geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean, or None without values. Raises ValueError for one that is not positive."""
    return statistics.geometric_mean(values) if values else None


def _by_problem(observations: list[Observation], arm: str) -> dict[str, list[Observation]]:
    """Return the observations of an arm by problem, in their order."""
    problems: dict[str, list[Observation]] = {}
    for observation in observations:
        if observation.arm == arm:
            problems.setdefault(observation.problem, []).append(observation)
    return problems


def arm(observations: list[Observation], name: str) -> ArmSpeeds:
    """Return the means of an arm."""
    problems = {problem: _speeds(repeats) for problem, repeats in _by_problem(observations, name).items()}
    overall = Speeds(
        _geometric_mean([each.fail_is_1 for each in problems.values() if each.fail_is_1]),
        _geometric_mean([each.correct_only for each in problems.values() if each.correct_only]),
        sum(each.correct for each in problems.values()),
        sum(each.n or 0 for each in problems.values()),
    )
    return ArmSpeeds(problems, overall, {p: _fast_p(observations, name, p) for p in FAST_P})


def _mean_log(repeats: list[Observation]) -> float:
    return statistics.fmean(each.log for each in repeats)


def _speeds(repeats: list[Observation]) -> Speeds:
    correct = [each.speedup for each in repeats if each.speedup]
    return Speeds(math.exp(_mean_log(repeats)), _geometric_mean(correct), len(correct), len(repeats))


def _fast_p(observations: list[Observation], name: str, p: float) -> float | None:
    shares = [sum(1 for each in repeats if each.speedup and each.speedup > p) / len(repeats)
              for repeats in _by_problem(observations, name).values()]  # fmt: skip
    return sum(shares) / len(shares) if shares else None


def paired(observations: list[Observation], base: str, other: str) -> Paired | None:
    """Compare `other` with `base` on the problems that both have; None if they share no problem."""
    left, right = _by_problem(observations, base), _by_problem(observations, other)
    shared = [problem for problem in left if problem in right]
    if not shared:
        return None
    n = len(shared)
    differences = [_mean_log(right[problem]) - _mean_log(left[problem]) for problem in shared]
    mean = float(np.mean(differences))
    found = Paired(
        base, other, n, math.exp(mean), dict(zip(shared, map(math.exp, differences), strict=True)),
        sum(d > _ROUNDING for d in differences), sum(d < -_ROUNDING for d in differences), _bootstrap(differences),
        sign_flip(differences),
    )  # fmt: skip
    if n < 2:
        return found
    spread = float(np.std(differences, ddof=1))
    half = student(1 - _LEVEL / 2, n - 1) * spread / math.sqrt(n)
    power = {"t_ci95": [math.exp(mean - half), math.exp(mean + half)], "sd": spread,
             "detectable": detectable(spread, n)}  # fmt: skip
    return Paired(**vars(found) | power)


def _bootstrap(differences: list[float]) -> list[float] | None:
    """Return the 95 % interval of exp(mean difference), by resampling problems. None for fewer than two.

    The percentiles are moved outwards, so that an interval over few problems is as wide as Student's (Hesterberg 2015,
    expanded percentile interval).
    """
    from scipy import special, stats

    n = len(differences)
    if n < 2:
        return None
    tail = special.ndtr(-student(1 - _LEVEL / 2, n - 1) * math.sqrt(n / (n - 1)))
    found = stats.bootstrap((differences,), np.mean, n_resamples=_RESAMPLES, confidence_level=1 - 2 * tail,
                            method="percentile", rng=np.random.default_rng(_SEED))  # fmt: skip
    return [math.exp(edge) for edge in found.confidence_interval]


def sign_flip(differences: list[float]) -> SignFlip:
    """Return the two-sided p-value of the mean if the sign of each difference were random."""
    from scipy import stats  # most of a second, which other reports need not

    if len(differences) < 2:  # either sign is as far from 0
        return SignFlip(1.0, exact=True)
    # A difference of a rounding is none: ties of sign patterns must count as ties.
    values = [round(difference, 12) for difference in differences]
    test = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=_SIGN_FLIPS,
                                  rng=np.random.default_rng(_SEED))  # fmt: skip
    return SignFlip(float(test.pvalue), 2 ** len(differences) <= _SIGN_FLIPS)


def detectable(deviation: float, n: int) -> float:
    """Return the ratio that n problems with this spread would find at the 5 % level with a chance of 80 %."""
    quantiles = student(1 - _LEVEL / 2, n - 1) + student(_POWER, n - 1)
    return math.exp(quantiles * deviation / math.sqrt(n))
