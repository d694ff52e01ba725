"""Paired timing: blocks in which every variant runs once, in random order, on inputs that are new to it.

A block has one of three conditions. `gated` (published inputs, launches hidden behind a gate) gives the times. `open`
(no gate) gives the whole latency. `other` (gated, with inputs of another trial) reveals a solution that is fast only
on published inputs.

This module knows samples and decides when there are enough of them. `experiment.py` knows workers, gates and flushes.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from repro.errors import SolutionRejected
from repro.judge.timing import intervals
from repro.records import result as records

# Fewest blocks before sampling may stop; blocks between checks of the stop rule (two in a row must agree); most blocks.
_MIN_BLOCKS, _CHECK_BLOCKS, _MAX_BLOCKS = 32, 8, 400
# Each cycle has one ungated block and one block with alternate inputs, at these positions.
CYCLE, _OPEN_AT, _OTHER_AT = 8, 1, 2
# Fewest blocks of a screening.
_LEAST = 3
# Blocks that run first and are thrown away.
_WARM_BLOCKS = 2
# Bounds of a time that a worker may report: a nanosecond and a day.
_MIN_MS, MAX_MS = 1e-6, 86_400_000.0
# Sampling stops at this half-width of a 95 % interval, of a median or a speedup, as a fraction of its value.
_PRECISION = 0.005
# A solution's clock may differ from the judge's by the larger of these, beyond what the trusted variants differ by.
_CLOCK_SLACK, CLOCK_SLACK_MS = 0.03, 0.15
# The longer a call, the longer its commitment takes, by 1.0 to 1.3 % of the difference on H100s; why is not known. A
# solution slower than the trusted variants may take this share of the difference longer.
_SLOWER = 0.02
# Conditions whose clocks are compared. With up to _FEW calls no median is taken: the shortest is compared to the
# longest.
_CLOCKED, _FEW = ("gated", "other"), 3
# Clocks that disagree after fewer calls of a condition are compared again after this many, as is a solution that is
# slower with other inputs: a delay of the host in one or two calls is their median.
_ENOUGH = 16
# If a speedup falls by more than this with inputs other than those that are timed, that lower speedup counts.
INPUT_DEPENDENT = 0.05
# Clocks that disagree by more than the slack, but by at most this factor of it, are measured once more.
_MARGINAL = 2.0
# Two processes that run the same code differ in ways that blocks cannot average out, above all in memory placement.
# Every speedup's interval includes this much more, in quadrature. It is the largest distance from 1 (0.086 %, rounded
# up) of 34 A/A controls on H200s whose own interval was narrower than that distance. A normal distribution fitted to
# all 34 gives 0.05 %, at most 0.07 %; their tails are heavier than normal.
SYSTEMATIC = 0.001
# The part of _PRECISION that is left for the statistics of the blocks.
_STATISTICAL = math.sqrt(_PRECISION**2 - SYSTEMATIC**2)
_CONTROL_PREFIX = "control "
# How long a kernel holds the stream, microseconds, where calls cannot be launched before their inputs exist, as without
# worker processes. Launches that take longer than this count as the GPU's time.
GATE_US = 500.0
# Fewest times needed on either side, and how much slower baselines may be beside a solution than alone.
_TELLING, HELD_UP = 4, 0.05


@dataclass
class Sample:
    """One timed call; all times in ms.

    device_ms (CUDA events), host_ms and launch_ms (time until launched) are the worker's report. wall_ms is the judge's
    clock around the call; gate_ms is how long the gate held it. reported_ms: the reported device time, where the
    judge's replaces it. seal_ms: the judge's clock from the answer until the output was sealed. hidden: whether the
    worker reports that everything was launched before the inputs existed; None where launches are not hidden, as on the
    CPU.
    """

    device_ms: float
    host_ms: float
    wall_ms: float
    gate_ms: float
    launch_ms: float = 0.0
    reported_ms: float | None = None
    seal_ms: float = 0.0
    hidden: bool | None = None

    @property
    def unexplained_ms(self) -> float:
        """Return the time on the judge's clock beyond the gate and the device time, ms."""
        return self.wall_ms - self.gate_ms - self.device_ms


@dataclass(frozen=True)
class Block:
    """One round of all variants; rounds with negative numbers warm up."""

    number: int

    @property
    def condition(self) -> str:
        """Return `gated`, `open` or `other`."""
        return {_OPEN_AT: "open", _OTHER_AT: "other"}.get(self.number % CYCLE, "gated")


@dataclass
class Turns:
    """Decides which calls of a solution are compared whole: a secret one of the first cycle, then of each `every`."""

    calls: int = 0
    end: int = 0
    chosen: int = -1

    def now(self, every: int) -> bool:
        """Count a call. Return whether it is compared whole."""
        if self.calls == self.end:
            length = every if self.end else min(every, CYCLE)
            self.chosen = self.end + random.SystemRandom().randrange(length)
            self.end += length
        self.calls += 1
        return self.calls - 1 == self.chosen


@dataclass
class Series:
    """The samples of one variant by condition, one a block."""

    gated: list[Sample] = field(default_factory=list)
    open: list[Sample] = field(default_factory=list)
    other: list[Sample] = field(default_factory=list)

    @property
    def device_ms(self) -> list[float]:
        return [s.device_ms for s in self.gated]

    @property
    def blocks(self) -> int:
        return len(self.gated) + len(self.open) + len(self.other)

    @property
    def latency_ms(self) -> list[float]:
        return [s.host_ms for s in self.open]

    def record(self) -> records.Series:
        """Return every raw sample. Where the judge's device time counts, the reported one is kept by sample number."""
        names = ("device_ms", "host_ms", "wall_ms", "seal_ms")
        gated, latency, other = (
            records.Samples(**{name: [round(getattr(s, name), 6) for s in taken] for name in names})
            for taken in (self.gated, self.open, self.other)
        )
        reported = {str(i): s.reported_ms for i, s in enumerate(self.gated) if s.reported_ms is not None}
        record = records.Series(gated=gated, open=latency, other=other)
        return record.model_copy(update={"reported_ms": reported}) if reported else record


AllSeries = dict[str, Series]  # by variant


@dataclass(frozen=True)
class Runner:
    """One variant. `run(block)` makes one timed call and returns its sample.

    candidate: the other variants are compared with it. control: it is compared with the first variant.
    """

    name: str
    run: Callable[[Block], Sample]
    candidate: bool = False
    control: bool = False


def _hidden_ms(series: Series) -> list[float]:
    """Return device times, ms, of gated calls with hidden launches; none if they are under half or under _TELLING."""
    hidden = [s.device_ms for s in series.gated if s.hidden]
    return hidden if len(hidden) >= max(_TELLING, len(series.gated) / 2) else []


def visible(series: AllSeries) -> list[str]:
    """Return the variants of which more than half of the gated calls were still launching when their inputs existed."""
    return [name for name, s in series.items() if 2 * sum(bool(sample.hidden) for sample in s.gated) < len(s.gated)]


def _slower(beside_ms: list[float], alone_ms: list[float]) -> float:
    """Return how many times slower one variant was, by the median or by the geometric mean, whichever is more.

    Speedups use geometric means. A minority of slow calls moves the mean alone.
    """
    return max(f(beside_ms) / f(alone_ms) for f in (statistics.median, statistics.geometric_mean))


def held_up(beside: AllSeries, alone: AllSeries) -> tuple[float, dict[str, float]]:
    """Return how many times slower the baselines were beside solutions than alone, and the ratio of each.

    Variants with hidden launches decide, since a busy host slows the others too; without such variants all decide.
    """

    def ratios(times: Callable[[Series], list[float]]) -> dict[str, float]:
        pairs = {name: (times(beside[name]), times(samples)) for name, samples in alone.items()}
        return {name: _slower(b, a) for name, (b, a) in pairs.items() if a and b}

    every = ratios(lambda series: series.device_ms)
    deciding = list(ratios(_hidden_ms).values())
    rounded = {name: round(ratio, 4) for name, ratio in every.items()}
    return statistics.median(deciding or every.values() or [1.0]), rounded


def converged(series: AllSeries, candidates: list[str]) -> bool:
    """Return whether the blocks determine all results to _PRECISION, so that `speedup` can report them.

    These are each candidate's median, its ratio to the fastest and to the first other variant, and the first variant's
    ratio to the control. Three times the width is enough for the candidate's ratios to the remaining variants.
    """
    if not series or any(len(s.gated) < _MIN_BLOCKS // 2 for s in series.values()):
        return False
    others = [name for name in series if name not in candidates]
    fastest = _fastest(series, others)
    for name in candidates:
        ours = series[name].device_ms
        summary = intervals.summary(ours)
        if _half(summary.ci95) > _STATISTICAL * summary.median:
            return False
        for other in others:
            wanted = _STATISTICAL if other in (fastest, others[0]) else 3 * _STATISTICAL
            if not _known(series[other].device_ms, ours, wanted):
                return False
    return all(
        _known(series[others[0]].device_ms, series[other].device_ms, _STATISTICAL)
        for other in others[1:]
        if _CONTROL_PREFIX in other
    )


def _fastest(series: AllSeries, names: list[str]) -> str:
    """Return the variant with the lowest median time, or the empty string."""
    return min(names, key=lambda name: statistics.median(series[name].device_ms), default="")


def _known(base_ms: list[float], ours_ms: list[float], precision: float) -> bool:
    """Return whether the ratio of two series is known to this precision, over the blocks that both have."""
    count = min(len(base_ms), len(ours_ms))
    ratio = intervals.paired_ratio(base_ms[:count], ours_ms[:count])
    return _half(ratio.ci95) <= precision * ratio.ratio


def _half(interval: list[float]) -> float:
    return (interval[1] - interval[0]) / 2


def measure(runners: list[Runner], budget_s: float, *, warm: bool, most: int = _MAX_BLOCKS) -> tuple[AllSeries, str]:
    """Run blocks until everything has converged, or until the budget or `most` blocks are reached.

    If a deciding ratio is still open, the same budget is spent again on the variants of these ratios alone. Deciding
    are a candidate's ratio to the first and to the fastest other variant, and the first variant's to the control. A
    noisy kernel needs hundreds of blocks, and the remaining variants decide nothing.

    Return the series and `converged` or `not_converged`. An error of a runner ends the measurement.
    """
    series = {runner.name: Series() for runner in runners}
    candidates = [runner.name for runner in runners if runner.candidate]
    deadline = time.monotonic() + budget_s
    status = _blocks(runners, series, candidates, deadline, -_WARM_BLOCKS if warm else 0, most)
    chosen = _deciding(runners, series) if status != "converged" and most >= _MAX_BLOCKS else []
    if chosen:
        left = {runner.name: series[runner.name] for runner in chosen}
        done = max(samples.blocks for samples in left.values())
        status = _blocks(chosen, left, candidates, deadline + budget_s, done, most)
    return series, status


def _deciding(runners: list[Runner], series: AllSeries) -> list[Runner]:
    """Return the variants of deciding ratios; none if no candidate is compared with anything."""
    others = [runner.name for runner in runners if not runner.candidate]
    if not others or len(others) == len(runners):
        return []
    compared = (others[0], _fastest(series, others))
    return [runner for runner in runners if runner.candidate or runner.control or runner.name in compared]


def screened(runners: list[Runner], budget_s: float, most: int) -> AllSeries:
    """Run up to `most` gated blocks, and at least _LEAST, after one that is dropped. Nothing is compared."""
    series = {runner.name: Series() for runner in runners}
    deadline = time.monotonic() + budget_s
    for number in range(-1, most):
        for runner in random.sample(runners, len(runners)):
            sample = runner.run(Block(CYCLE * number))
            if number >= 0:
                series[runner.name].gated.append(sample)
        if number + 1 >= _LEAST and time.monotonic() > deadline:
            break
    return series


def _blocks(
    runners: list[Runner], series: AllSeries, candidates: list[str], deadline: float, first: int, most: int
) -> str:
    """Run blocks from number `first` on, and drop samples of negative ones. Return the status.

    A whole cycle runs whatever the budget, so that a solution that turns wrong after some calls is caught even if calls
    are slow. Sampling ends when two checks in a row find everything known: one narrow interval may be luck.
    """
    known = 0
    for block in range(first, most):
        this = Block(block)
        for runner in random.sample(runners, len(runners)):
            sample = runner.run(this)
            if block >= 0:
                getattr(series[runner.name], this.condition).append(sample)
        if block >= _MIN_BLOCKS - _CHECK_BLOCKS and block % _CHECK_BLOCKS == 0:
            known = known + 1 if converged(series, candidates) else 0
            if known > 1:
                return "converged"
        if block > first and block >= CYCLE and time.monotonic() > deadline:
            break
    return "converged" if known and converged(series, candidates) else "not_converged"


def reported(value: Any) -> float:
    """Return a time that a worker reported, ms. Raises SolutionRejected if it is not a possible time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _MIN_MS <= value < MAX_MS:
        raise SolutionRejected("impossible_time", f"expected a positive time, got {str(value)[:40]}")
    return float(value)


def slack_ms(device_ms: float) -> float:
    """Return how much longer than `device_ms` a call may take before the judge's clock shows it, ms."""
    return max(CLOCK_SLACK_MS, _CLOCK_SLACK * device_ms)


def _times(of: list[Series], condition: str, name: str) -> list[float]:
    """Return one time of every call of a condition, ms; name: an attribute of Sample."""
    return [getattr(sample, name) for series in of for sample in getattr(series, condition)]


def _usual_ms(trusted: list[Series], condition: str, late: bool) -> float | None:
    """Return the usual time beyond gate and device time with trusted variants, ms; None without samples.

    late: for a variant whose calls are launched late, trusted calls that are launched so count too, if they are longer.
    """
    usual = _most_ms(trusted, condition, "unexplained_ms")
    late_ms = _times(trusted, "open", "unexplained_ms") if late else []
    return max(usual, statistics.median(late_ms)) if usual is not None and late_ms else usual


def _most_ms(trusted: list[Series], condition: str, name: str) -> float | None:
    """Return the largest of the variants' medians of a time, ms; of all calls if they are few; None without samples."""
    times = [calls for series in trusted if (calls := _times([series], condition, name))]
    return max((max(calls) if len(calls) < _FEW else statistics.median(calls) for calls in times), default=None)


def seal_slack_ms(ours: Series, trusted: list[Series], condition: str, sealing_ms: float) -> float:
    """Return how much longer than the trusted variants' `sealing_ms` an output may take to seal, ms."""
    device = statistics.median(_times([ours], condition, "device_ms"))
    slower_ms = device - (_most_ms(trusted, condition, "device_ms") or device)
    return slack_ms(sealing_ms) + _SLOWER * max(0.0, slower_ms)


def _spread_ms(trusted: list[Series], condition: str, name: str) -> float:
    """Return between which times the middle half of the trusted variants' calls lies: their distance, ms."""
    times = _times(trusted, condition, name)
    if len(times) < _FEW:
        return 0.0
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def _least_ms(ours: Series, condition: str, name: str) -> float:
    """Return the usual value of a time, ms.

    The calls with other inputs are few and use the lower median, so that one slow call does not count.
    """
    middle = statistics.median if condition == "gated" else statistics.median_low
    return middle(_times([ours], condition, name))


@dataclass(frozen=True)
class Excess:
    """Unreported time of a solution beyond that of the trusted variants, by one clock of the judge.

    over_ms: how much longer. slack_ms: how much longer is allowed. message: text with a place for the number. unsure: a
    busy host may be the reason, as it rests on fewer than _FEW calls, or the trusted variants' own differ by more.
    """

    over_ms: float
    slack_ms: float
    message: str
    unsure: bool = False


Excesses = dict[str, Excess]  # by clock


def excesses(ours: Series, trusted: list[Series], *, late: bool = False) -> Excesses:
    """Return the excess by clock: of seals and of calls, each for gated calls and for those with other inputs.

    The judge sees the time from request to answer. Beyond gate and device time this holds the round trip, which is the
    same for every variant. A solution that takes longer than the trusted variants did not report that time. late: its
    calls are launched when their inputs exist.
    """
    by_clock = {}
    for condition in _CLOCKED:
        usual, sealing = _usual_ms(trusted, condition, late), _most_ms(trusted, condition, "seal_ms")
        if usual is None or sealing is None or not (samples := getattr(ours, condition)):
            continue
        device = statistics.median(_times([ours], condition, "device_ms"))
        given = "" if condition == "gated" else f" with {condition} inputs"
        sealed = f"its output{given} took {{:.3g}} ms longer to seal than the baselines': work may run after the call"
        passed = f"{{:.3g}} ms a call passed on the judge's clock beyond the reported time ({device:.4g} ms{given})"
        slack, seal_slack = slack_ms(device), seal_slack_ms(ours, trusted, condition, sealing)
        for clock, name, usually, widest, allowed, message in (
            (f"seal, {condition}", "seal_ms", sealing, slack_ms(sealing), seal_slack, sealed),
            (condition, "unexplained_ms", usual, slack, slack, passed),
        ):
            unsure = len(samples) < _FEW or _spread_ms(trusted, condition, name) > widest
            by_clock[clock] = Excess(_least_ms(ours, condition, name) - usually, allowed, message, unsure)
    return by_clock


def ask_more(runners: list[Runner], series: AllSeries, late: Collection[str]) -> None:
    """Add calls until there are _ENOUGH of each condition in which the clocks of a candidate disagree, and of calls
    with other inputs if it is slower there by the times that count.

    The candidates in doubt and the trusted variants run in the same blocks. late: names of variants whose calls are
    launched late; no solution is compared with those that are trusted.
    """
    fixed = [r for r in runners if not r.candidate and r.name not in late]
    trusted = [series[r.name] for r in fixed]
    for at, condition in ((0, "gated"), (_OTHER_AT, "other")):
        chosen = [r for r in runners if r.candidate and _doubted(series[r.name], trusted, condition, r.name in late)]
        chosen += fixed if chosen else []
        fewest = min((len(getattr(series[r.name], condition)) for r in chosen), default=_ENOUGH)
        for number in range(fewest, _ENOUGH):
            for runner in random.sample(chosen, len(chosen)):
                getattr(series[runner.name], condition).append(runner.run(Block(CYCLE * number + at)))


def _doubted(ours: Series, trusted: list[Series], condition: str, late: bool) -> bool:
    by_clock = excesses(ours, trusted, late=late)
    if any(excess.over_ms > excess.slack_ms for clock, excess in by_clock.items() if clock.endswith(condition)):
        return True
    if condition == "gated" or not ours.other:
        return False
    counts = corrected(ours, trusted, late=late)
    there, here = (statistics.median(_times([counts], name, "device_ms")) for name in (condition, "gated"))
    return there > here * (1 + INPUT_DEPENDENT)


def marginal(by_clock: Excesses) -> bool:
    """Return whether the clocks disagree so little, in so few calls, or on so busy a host that it may be bad luck.

    A process's placement on the host affects all of its calls, and more calls do not average it out.
    """
    over = [excess for excess in by_clock.values() if excess.over_ms > excess.slack_ms]
    return bool(over) and all(excess.unsure or excess.over_ms <= _MARGINAL * excess.slack_ms for excess in over)


def disagreement(ours: Series, trusted: list[Series], *, late: bool = False, before: Excesses | None = None) -> str:
    """Return why the worker's clocks do not match the judge's, or the empty string.

    before: excesses measured with an earlier worker of the solution. Then the mean of both must be within the slack.
    Where the earlier ones are unsure, the new measurement decides, because one delay would decide the mean.
    """
    for clock, excess in excesses(ours, trusted, late=late).items():
        earlier = (before or {}).get(clock)
        both = [earlier.over_ms] if earlier is not None and not earlier.unsure else []
        over_ms = statistics.fmean([excess.over_ms, *both])
        if over_ms > excess.slack_ms:
            return excess.message.format(over_ms)
    for condition in _CLOCKED:
        samples: list[Sample] = getattr(ours, condition)
        if not samples or _usual_ms(trusted, condition, late) is None:
            continue
        beyond = _least_ms(ours, condition, "unexplained_ms")
        if beyond < 0 or any(max(s.host_ms, s.device_ms) > s.wall_ms for s in samples):
            device = statistics.median(_times([ours], condition, "device_ms"))
            return f"the solution reports more time ({device:.4g} ms) than passed on the judge's clock"
    return ""


def corrected(ours: Series, trusted: list[Series], *, late: bool = False) -> Series:
    """Return a solution's series with the judge's time in gated calls that report far too little.

    Such a call reports less than the solution's median by more than the slack, while more time passed before its answer
    or in its seal. `disagreement` compares medians, which a minority of calls does not move, but a geometric mean
    counts all calls. Delays of the host alone do not lower the device time. Calls with other inputs may all be short
    alike: for them the judge's time counts wherever more time passed than in the trusted variants' call of the same
    rank, since a busy host delays some calls of every variant.
    """
    usual, sealing = _usual_ms(trusted, "gated", late), _most_ms(trusted, "gated", "seal_ms")
    if usual is None or sealing is None or not ours.gated:
        return ours
    device = statistics.median(ours.device_ms)
    allowed = seal_slack_ms(ours, trusted, "gated", sealing)

    def judged(sample: Sample, usual_ms: float, sealing_ms: float, shortest_ms: float) -> Sample:
        claimed = counts = sample.device_ms
        if claimed >= shortest_ms:
            return sample
        seen, put_off = sample.wall_ms - sample.gate_ms - usual_ms, sample.seal_ms - sealing_ms
        if seen > claimed + slack_ms(seen):
            counts = seen
        if put_off > allowed:
            counts += put_off
        kept = claimed if sample.reported_ms is None else sample.reported_ms
        return sample if counts == claimed else replace(sample, device_ms=counts, reported_ms=kept)

    def ranked(name: str, least_ms: float) -> dict[float, float]:
        mine, theirs = (sorted(_times(of, "other", name)) for of in ([ours], trusted))
        step = len(theirs) / len(mine)
        return {ms: max([least_ms, *theirs[int(step * (i + 0.5)) :][:1]]) for i, ms in enumerate(mine)}

    gated = [judged(sample, usual, sealing, device - slack_ms(device)) for sample in ours.gated]
    if len(ours.other) < _FEW:
        return replace(ours, gated=gated)
    there = max(usual, _usual_ms(trusted, "other", late) or usual)
    walls, seals = ranked("unexplained_ms", there), ranked("seal_ms", sealing)
    other = [judged(sample, walls[sample.unexplained_ms], seals[sample.seal_ms], math.inf) for sample in ours.other]
    return replace(ours, gated=gated, other=other)
