"""Paired timing: blocks in which every variant runs once, in random order, on inputs that are new to it.

Blocks are of three conditions: `gated` (published inputs, the launch hidden) gives the times; `open` (no gate) the
whole latency; `other` (gated, on the inputs of another trial) shows a solution that is fast on published inputs alone.

This module knows samples and when there are enough of them; `contest.py` knows workers, gates and flushes.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from repro.errors import SolutionRejected
from repro.judge import stats

# Blocks before sampling may stop, between checks of the stop rule (two in a row must agree), and at most.
MIN_BLOCKS, CHECK_BLOCKS, MAX_BLOCKS = 32, 8, 400
# Of so many blocks one is open and one has other inputs.
CYCLE, OPEN_AT, OTHER_AT = 8, 1, 2
# Blocks that are run and thrown away first.
WARM_BLOCKS = 2
# A worker's word for a time is taken between a nanosecond and a day.
MIN_MS, MAX_MS = 1e-6, 86_400_000.0
# Half-width of a 95 % interval, of a median or of a speedup, as a fraction of it, at which sampling stops.
PRECISION = 0.005
# What a solution's clock may keep from the judge's: the larger of these, over what the trusted variants keep.
CLOCK_SLACK, CLOCK_SLACK_MS = 0.03, 0.15
# The calls whose clocks are compared. So few have no median: the shortest is held against the longest.
CLOCKED, FEW = ("gated", "other"), 3
# A disagreement of the clocks by more than that, and by no more than so many times that, is measured once more.
MARGINAL = 2.0
# Two processes that run the same code differ by what blocks cannot average out (where their memory lies, above all).
# Every speedup's interval holds this much more, in quadrature: as far as any of 34 A/A controls on H200s lay from 1
# whose own interval was narrower than that (0.086 %), rounded up. A normal law fitted to all 34 says 0.05 %, and 0.07 %
# at the upper end of what they allow; their tails are heavier than normal.
SYSTEMATIC = 0.001
# What the blocks themselves may leave open of PRECISION.
STATISTICAL = math.sqrt(PRECISION**2 - SYSTEMATIC**2)
CONTROL_PREFIX = "control "
# How long a kernel holds the stream where calls cannot be launched before their inputs are there, as without processes,
# microseconds. What it does not hide of the launches counts as the GPU's time.
GATE_US = 500.0
# Times that are needed on either side, and how much slower baselines may be beside a solution than alone.
TELLING, HELD_UP = 4, 0.05


@dataclass
class Sample:
    """One call: device time (events), host time and time until it was launched, as the worker says; the judge's own
    clock around it; and the gate. ms. reported_ms: the device time that the worker said, where the judge's counts;
    seal_ms: what the judge saw pass from then on until the output was sealed. hidden: whether all of it was launched,
    by the worker's word, before its inputs were there; None where nothing waits for launches, as on the CPU."""

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
        """What the judge saw pass beyond the gate and the device time."""
        return self.wall_ms - self.gate_ms - self.device_ms


@dataclass(frozen=True)
class Block:
    """One round of all variants; those under 0 warm up."""

    number: int

    @property
    def condition(self) -> str:
        """`gated`, `open` or `other`."""
        return {OPEN_AT: "open", OTHER_AT: "other"}.get(self.number % CYCLE, "gated")


@dataclass
class Turns:
    """Which calls of a solution are compared whole whatever chance says: a secret one of the first cycle, then of each
    `every`."""

    calls: int = 0
    end: int = 0
    chosen: int = -1

    def now(self, every: int) -> bool:
        """Whether this call is one of them."""
        if self.calls == self.end:
            length = every if self.end else min(every, CYCLE)
            self.chosen = self.end + random.SystemRandom().randrange(length)
            self.end += length
        self.calls += 1
        return self.calls - 1 == self.chosen


@dataclass
class Series:
    """The samples of one variant, one a block, by its condition; hot_ms: back to back, cache as it is."""

    gated: list[Sample] = field(default_factory=list)
    open: list[Sample] = field(default_factory=list)
    other: list[Sample] = field(default_factory=list)
    hot_ms: float | None = None

    @property
    def device_ms(self) -> list[float]:
        return [s.device_ms for s in self.gated]

    @property
    def latency_ms(self) -> list[float]:
        return [s.host_ms for s in self.open]

    def to_json(self) -> dict[str, Any]:
        """Every raw sample; of gated ones whose device time is the judge's, what the worker said, by their number."""
        names = ("device_ms", "host_ms", "wall_ms", "seal_ms")
        samples = {"gated": self.gated, "open": self.open, "other": self.other}
        reported = {str(i): s.reported_ms for i, s in enumerate(self.gated) if s.reported_ms is not None}
        return {
            condition: {name: [round(getattr(s, name), 6) for s in taken] for name in names}
            for condition, taken in samples.items()
        } | {"hot_ms": self.hot_ms, **({"reported_ms": reported} if reported else {})}


@dataclass(frozen=True)
class Runner:
    """One variant. `run(block)` makes one timed call and returns its sample; candidate: others are compared with it;
    control: it is compared with the first."""

    name: str
    run: Callable[[Block], Sample]
    candidate: bool = False
    control: bool = False


def _hidden_ms(series: Series) -> list[float]:
    """Device times of the gated calls whose launches were hidden; none where those are too few to tell."""
    hidden = [s.device_ms for s in series.gated if s.hidden]
    return hidden if len(hidden) >= max(TELLING, len(series.gated) / 2) else []


def visible(series: dict[str, Series]) -> list[str]:
    """The variants of whose gated calls more than half were not launched when their inputs were there."""
    return [name for name, found in series.items() if 2 * sum(bool(s.hidden) for s in found.gated) < len(found.gated)]


def _slower(beside_ms: list[float], alone_ms: list[float]) -> float:
    """How much slower one variant was: by its median, or by its geometric mean, of which a speedup is made, where that
    is more. A minority of calls moves the mean alone."""
    return max(f(beside_ms) / f(alone_ms) for f in (statistics.median, statistics.geometric_mean))


def held_up(beside: dict[str, Series], alone: dict[str, Series]) -> tuple[float, dict[str, Any]]:
    """How much slower baselines were beside solutions than alone, and the ratios of all of them as facts.

    Those tell whose launches were hidden, for the others' times are a busy host's too; where there are none, all.
    """

    def ratios(times: Callable[[Series], list[float]]) -> dict[str, float]:
        pairs = {name: (times(beside[name]), times(found)) for name, found in alone.items()}
        return {name: _slower(b, a) for name, (b, a) in pairs.items() if a and b}

    every = ratios(lambda series: series.device_ms)
    told = list(ratios(_hidden_ms).values())
    facts = {"alone": {name: round(ratio, 4) for name, ratio in every.items()}}
    return statistics.median(told or every.values() or [1.0]), facts


def converged(series: dict[str, Series], candidates: list[str]) -> bool:
    """Whether blocks know every candidate's median, its ratio to the fastest and to the first of the others, and the
    first's to the control, so that `speedup` tells them to PRECISION; of the rest three times that is enough."""
    if not series or any(len(s.gated) < MIN_BLOCKS // 2 for s in series.values()):
        return False
    others = [name for name in series if name not in candidates]
    fastest = min(others, key=lambda name: statistics.median(series[name].device_ms), default="")
    for name in candidates:
        ours = series[name].device_ms
        summary = stats.summary(ours)
        if _half(summary["ci95"]) > STATISTICAL * summary["median"]:
            return False
        for other in others:
            wanted = STATISTICAL if other in (fastest, others[0]) else 3 * STATISTICAL
            if not _known(series[other].device_ms, ours, wanted):
                return False
    return all(
        _known(series[others[0]].device_ms, series[other].device_ms, STATISTICAL)
        for other in others[1:]
        if CONTROL_PREFIX in other
    )


def _known(base_ms: list[float], ours_ms: list[float], precision: float) -> bool:
    """Whether the ratio of two series is known so well; of different lengths, over the blocks that both have."""
    count = min(len(base_ms), len(ours_ms))
    ratio = stats.paired_ratio(base_ms[:count], ours_ms[:count])
    return bool(_half(ratio["ci95"]) <= precision * ratio["ratio"])


def _half(interval: list[float]) -> float:
    return (interval[1] - interval[0]) / 2


def measure(
    runners: list[Runner], budget_s: float, *, warm: bool, most: int = MAX_BLOCKS
) -> tuple[dict[str, Series], str]:
    """Runs blocks until everything has converged, or the budget or `most` blocks are reached. Then, where a candidate's
    ratio to the first or to the fastest of the others, or the first's to the control, is still open, as long again with
    these alone: a noisy kernel needs hundreds of blocks, which would be spent on what decides nothing. Twice the budget
    is the end.

    Returns the series and `converged` or `not_converged`. A runner that raises ends the measurement with its error.
    """
    series = {runner.name: Series() for runner in runners}
    candidates = [runner.name for runner in runners if runner.candidate]
    deadline = time.monotonic() + budget_s
    status = _blocks(runners, series, candidates, deadline, -WARM_BLOCKS if warm else 0, most)
    others = [runner.name for runner in runners if not runner.candidate]
    if status == "converged" or not candidates or not others or most < MAX_BLOCKS:
        return series, status
    fastest = min(others, key=lambda name: statistics.median(series[name].device_ms))
    names = {*candidates, others[0], fastest, *(r.name for r in runners if r.control)}
    chosen = [runner for runner in runners if runner.name in names]
    left = {name: series[name] for name in series if name in names}
    done = max(len(s.gated) + len(s.open) + len(s.other) for s in left.values())
    return series, _blocks(chosen, left, candidates, deadline + budget_s, done, most)


def _blocks(
    runners: list[Runner], series: dict[str, Series], candidates: list[str], deadline: float, first: int, most: int
) -> str:
    """Blocks from number `first` on; those under 0 are thrown away. A whole cycle runs whatever the budget: a solution
    that turns wrong after some calls is met also where calls are slow. They end when two checks in a row find all of it
    known: a single narrow interval may be luck, and stopping at it would make luck the rule."""
    known = 0
    for block in range(first, most):
        this = Block(block)
        for runner in random.sample(runners, len(runners)):
            sample = runner.run(this)
            if block >= 0:
                getattr(series[runner.name], this.condition).append(sample)
        if block >= MIN_BLOCKS - CHECK_BLOCKS and block % CHECK_BLOCKS == 0:
            known = known + 1 if converged(series, candidates) else 0
            if known > 1:
                return "converged"
        if block > first and block >= CYCLE and time.monotonic() > deadline:
            break
    return "converged" if known and converged(series, candidates) else "not_converged"


def reported(value: Any) -> float:
    """A time as a worker reported it, ms. Raises SolutionRejected where it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_MS <= value < MAX_MS:
        raise SolutionRejected("impossible_time", f"a positive time was due, got {str(value)[:40]}")
    return float(value)


def slack_ms(device_ms: float) -> float:
    """How much more than `device_ms` a call may have taken without the judge's clock showing it."""
    return max(CLOCK_SLACK_MS, CLOCK_SLACK * device_ms)


def _usual_ms(trusted: list[Series], condition: str, late: bool) -> float | None:
    """What the judge sees pass beyond the gate and the device time with trusted variants; for one whose calls are
    launched late as much as with theirs that are launched so too, where that is more."""
    usual = _most_ms(trusted, condition, lambda sample: sample.unexplained_ms)
    late_ms = [s.unexplained_ms for series in trusted for s in series.open] if late else []
    return max(usual, statistics.median(late_ms)) if usual is not None and late_ms else usual


def _sealing_ms(trusted: list[Series], condition: str) -> float | None:
    """What sealing takes with trusted variants."""
    return _most_ms(trusted, condition, lambda sample: sample.seal_ms)


def _most_ms(trusted: list[Series], condition: str, value: Callable[[Sample], float]) -> float | None:
    """The most that some time of calls comes to, of the medians of all variants; or of all calls where they are few."""
    times = [[value(s) for s in getattr(series, condition)] for series in trusted if getattr(series, condition)]
    if not times:
        return None
    return max(max(each) if len(each) < FEW else statistics.median(each) for each in times)


def _least_ms(samples: list[Sample], condition: str, value: Callable[[Sample], float]) -> float:
    """What that time usually comes to; of the few calls with other inputs by the lower median, which favours nobody's
    single slow call."""
    middle = statistics.median if condition == "gated" else statistics.median_low
    return middle([value(sample) for sample in samples])


@dataclass(frozen=True)
class Excess:
    """How much longer than the trusted variants a solution took without telling, by one clock of the judge, and how
    much longer it may, ms; told: that in words, with a place for the number."""

    over_ms: float
    slack_ms: float
    told: str


def excesses(ours: Series, trusted: list[Series], *, late: bool = False) -> dict[str, Excess]:
    """By the clock: that of seals, of gated calls, and of those with other inputs, where there is something to compare.

    The judge sees request to answer. Beyond gate and device time that holds the way there and back, which is the same
    for everyone: what a solution takes more than the trusted variants do is time that it did not report. late: its
    calls are launched when their inputs are there.
    """
    found = {}
    for condition in CLOCKED:
        samples = getattr(ours, condition)
        usual, sealing = _usual_ms(trusted, condition, late), _sealing_ms(trusted, condition)
        if usual is None or sealing is None or not samples:
            continue
        longer = _least_ms(samples, condition, lambda sample: sample.seal_ms) - sealing
        inputs = "" if condition == "gated" else f" with {condition} inputs"
        told = f"its output{inputs} took {{:.3g}} ms longer to seal than the baselines': work may have been put off"
        found[f"seal, {condition}"] = Excess(longer, slack_ms(sealing), told)
        device = statistics.median(s.device_ms for s in samples)
        inputs = "" if condition == "gated" else f", {condition} inputs"
        told = f"{{:.3g}} ms a call passed on the judge's clock and not on the solution's ({device:.4g} ms{inputs})"
        beyond = _least_ms(samples, condition, lambda sample: sample.unexplained_ms)
        found[condition] = Excess(beyond - usual, slack_ms(device), told)
    return found


def marginal(found: dict[str, Excess]) -> bool:
    """Whether the clocks disagree by so little that a process may have had bad luck: its place on the host is a part of
    all of its calls, which more of them do not average out."""
    over = [each for each in found.values() if each.over_ms > each.slack_ms]
    return bool(over) and all(each.over_ms <= MARGINAL * each.slack_ms for each in over)


def disagreement(
    ours: Series, trusted: list[Series], *, late: bool = False, before: dict[str, Excess] | None = None
) -> str:
    """Why the worker's clocks do not fit the judge's, or the empty string. before: what was found when another worker
    of the solution was timed; then the mean of both must fit, which this one alone does more than fit."""
    for clock, found in excesses(ours, trusted, late=late).items():
        both = [each[clock].over_ms for each in (before,) if each is not None and clock in each]
        over_ms = statistics.fmean([found.over_ms, *both])
        if over_ms > found.slack_ms:
            return found.told.format(over_ms)
    for condition in CLOCKED:
        samples = getattr(ours, condition)
        if not samples or _usual_ms(trusted, condition, late) is None:
            continue
        beyond = _least_ms(samples, condition, lambda sample: sample.unexplained_ms)
        if beyond < 0 or any(max(s.host_ms, s.device_ms) > s.wall_ms for s in samples):
            device = statistics.median(s.device_ms for s in samples)
            return f"the solution reports more time ({device:.4g} ms) than passed on the judge's clock"
    return ""


def corrected(ours: Series, trusted: list[Series], *, late: bool = False) -> Series:
    """The series of a solution in which the judge's time counts where a gated call reports far less than its others
    do and than passed, until its answer or in its seal: of a minority the medians of `disagreement` say nothing, and a
    mean of logs all. What the host alone holds up does not make the device's time short. Calls with other inputs may
    all be short alike: there it counts wherever more passed, as their median decides.
    """
    usual, sealing = _usual_ms(trusted, "gated", late), _sealing_ms(trusted, "gated")
    if usual is None or sealing is None or not ours.gated:
        return ours
    device = statistics.median(ours.device_ms)

    def judged(sample: Sample, usual_ms: float, shortest_ms: float) -> Sample:
        told = counts = sample.device_ms
        if told >= shortest_ms:
            return sample
        seen, put_off = sample.wall_ms - sample.gate_ms - usual_ms, sample.seal_ms - sealing
        if seen > told + slack_ms(seen):
            counts = seen
        if put_off > slack_ms(sealing):
            counts += put_off
        said = told if sample.reported_ms is None else sample.reported_ms
        return sample if counts == told else replace(sample, device_ms=counts, reported_ms=said)

    gated = [judged(sample, usual, device - slack_ms(device)) for sample in ours.gated]
    if len(ours.other) < FEW:
        return replace(ours, gated=gated)
    there = max(usual, _usual_ms(trusted, "other", late) or usual)
    return replace(ours, gated=gated, other=[judged(sample, there, math.inf) for sample in ours.other])
