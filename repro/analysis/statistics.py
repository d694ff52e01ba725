"""Statistics of a study's speedups: means, a paired difference with its uncertainty, and the power of the study.

Everything is in logs of speedups. Problems are the sample. Repeats of one problem only show its noise, so they are
averaged first.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from repro.analysis.records import grouped
from repro.judge.timing.intervals import student

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
    fast_p: dict[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Paired:
    """Two arms on the problems that both have.

    ratio: of geometric means (a failure is 1x). ci95: Student's, for the logs of the problems' ratios; it does not
    cover what all jobs share: one machine, one week, one model. sign_flip: a p-value. up, down: how many problems'
    ratios are over and under 1. detectable: ratio that 80 % of such studies would find.
    """

    base: str
    other: str
    n: int
    ratio: float
    up: int
    down: int
    sign_flip: float
    ci95: list[float] | None = None
    detectable: float | None = None


def _geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean, or None without values. Raises ValueError for one that is not positive."""
    return statistics.geometric_mean(values) if values else None


def _by_problem(observations: list[Observation], arm: str) -> dict[str, list[Observation]]:
    """Return the observations of an arm by problem, in their order."""
    return grouped((each.problem, each) for each in observations if each.arm == arm)


def arm(observations: list[Observation], name: str) -> ArmSpeeds:
    """Return the means of an arm."""
    by_problem = _by_problem(observations, name)
    problems = {problem: _speeds(repeats) for problem, repeats in by_problem.items()}
    overall = Speeds(
        _geometric_mean([each.fail_is_1 for each in problems.values() if each.fail_is_1]),
        _geometric_mean([each.correct_only for each in problems.values() if each.correct_only]),
        sum(each.correct for each in problems.values()),
        sum(each.n or 0 for each in problems.values()),
    )
    shares = {p: [statistics.fmean((each.speedup or 0) > p for each in repeats) for repeats in by_problem.values()]
              for p in FAST_P}  # fmt: skip
    return ArmSpeeds(problems, overall, {p: statistics.fmean(of) for p, of in shares.items() if of})


def _mean_log(repeats: list[Observation]) -> float:
    return statistics.fmean(each.log for each in repeats)


def _speeds(repeats: list[Observation]) -> Speeds:
    correct = [each.speedup for each in repeats if each.speedup]
    return Speeds(math.exp(_mean_log(repeats)), _geometric_mean(correct), len(correct), len(repeats))


def paired(observations: list[Observation], base: str, other: str) -> Paired | None:
    """Compare `other` with `base` on the problems that both have; None if they share no problem."""
    left, right = _by_problem(observations, base), _by_problem(observations, other)
    shared = [problem for problem in left if problem in right]
    if not shared:
        return None
    n = len(shared)
    differences = [_mean_log(right[problem]) - _mean_log(left[problem]) for problem in shared]
    mean = statistics.fmean(differences)
    found = Paired(base, other, n, math.exp(mean), sum(d > _ROUNDING for d in differences),
                   sum(d < -_ROUNDING for d in differences), sign_flip(differences))  # fmt: skip
    if n < 2:
        return found
    spread = statistics.stdev(differences)
    half = student(1 - _LEVEL / 2, n - 1) * spread / math.sqrt(n)
    return replace(found, ci95=[math.exp(mean - half), math.exp(mean + half)], detectable=detectable(spread, n))


def sign_flip(differences: list[float]) -> float:
    """Return the two-sided p-value of the mean if the sign of each difference were random."""
    from scipy import stats  # most of a second, which other reports need not

    if len(differences) < 2:  # either sign is as far from 0
        return 1.0
    # A difference of a rounding is none: ties of sign patterns must count as ties.
    values = [round(difference, 12) for difference in differences]
    test = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=_SIGN_FLIPS,
                                  rng=np.random.default_rng(_SEED))  # fmt: skip
    return float(test.pvalue)


def detectable(deviation: float, n: int) -> float:
    """Return the ratio that n problems with this spread would find at the 5 % level with a chance of 80 %."""
    quantiles = student(1 - _LEVEL / 2, n - 1) + student(_POWER, n - 1)
    return math.exp(quantiles * deviation / math.sqrt(n))
