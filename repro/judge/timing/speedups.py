"""Speedups of paired samples with their intervals, and a word for each.

The interval includes the uncertainty of the blocks, the difference between two processes of the same code, and the
host's variation where the GPU waits for launches.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

import numpy as np

from repro.judge.timing import intervals
from repro.judge.timing.sampling import INPUT_DEPENDENT, SYSTEMATIC, Sample, Series, slack_ms
from repro.records.result import JudgeResult
from repro.records.verdict import Ratio, Speedup, SpeedWord

# A ratio within this share of 1 counts as SAME.
SAME = 0.01
# A time's absolute uncertainty beside SYSTEMATIC, ms, which matters for short kernels only. 23 A/A controls of 5 to
# 18 us, each known to 0.1 us, differed from 1 by 0.5 us (rms). 0.75 us for either side give a 95 % interval of that.
_SYSTEMATIC_MS = 0.00075
# Where the GPU waits for launches, a time is the host's, and part of its variation between calls stays the same during
# a process's life (docs/judging.md). This share of either side's deviation explains the distance from 1 of A/A controls
# on such hosts.
_HOST_SHARE = 0.45
# Calls whose log times deviate by more than this vary as calls with visible launches do. Other kernels stay below 0.03.
_VARYING = 0.05


def host_term(series: Series, *, trusted: bool = True) -> float:
    """Return how far the median of a variant's log times may be off because of the host, at 95 %.

    It is 0 if most calls were launched before their inputs existed. A solution could falsely report that, so it also
    needs calls that vary little.
    """
    reports = [s.hidden for s in series.gated if s.hidden is not None]
    if not reports:
        return 0.0
    spread = statistics.pstdev(map(math.log, series.device_ms))
    hidden = 2 * sum(reports) > len(reports)
    return 0.0 if hidden and (trusted or spread < _VARYING) else _HOST_SHARE * spread


def speedup(
    base_ms: list[float], ours_ms: list[float], host_terms: Sequence[float] = (), *, trusted: bool = True
) -> Ratio:
    """Return `intervals.paired_ratio`, its interval widened by the difference between processes and by `host_terms`.

    The times are capped unless both are torch's (`trusted`). at_least: as if all time that the judge's clock cannot
    tell from overhead were the solution's.
    """
    count = min(len(base_ms), len(ours_ms))  # a variant that decides nothing may have fewer blocks
    ratio = intervals.paired_ratio(base_ms[:count], ours_ms[:count], capped=not trusted)
    middle = math.log(ratio.ratio)
    base, ours = statistics.median(base_ms), statistics.median(ours_ms)
    apart = (SYSTEMATIC, *(min(1.0, _SYSTEMATIC_MS / time_ms) for time_ms in (base, ours)))  # at most 100 % each

    def interval(*terms: float) -> list[float]:
        low, high = (math.hypot(math.log(edge) - middle, *apart, *terms) for edge in ratio.ci95)
        return [math.exp(middle - low), math.exp(middle + high)]

    at_least = ratio.ratio * ours / (ours + slack_ms(ours))
    widened = ratio.model_copy(update={"ci95": interval(*host_terms), "at_least": at_least})
    if not any(host_terms):
        return widened
    return widened.model_copy(update={"host_term": round(math.hypot(*host_terms), 4), "blocks_ci95": interval()})


def gated(base: Series, ours: Series, *, trusted: bool = True) -> Ratio:
    """Return `speedup` over the gated blocks of two variants. trusted: the second is torch's too."""
    terms = [host_term(base), host_term(ours, trusted=trusted)]
    return speedup(base.device_ms, ours.device_ms, terms, trusted=trusted)


def of_load(load: JudgeResult, old: str, new: str) -> Ratio:
    """Return how many times as fast as `old` a solution was in one load, from the recorded samples."""
    late = load.timing.launches_not_hidden
    base, ours = (
        Series([Sample(ms, 0.0, 0.0, 0.0, hidden=name not in late) for ms in load.samples_ms[name].gated.device_ms])
        for name in (old, new)
    )
    terms = [host_term(series, trusted=False) for series in (base, ours)]
    return speedup(base.device_ms, ours.device_ms, terms, trusted=False)


def over_loads(ratios: Sequence[Ratio]) -> Ratio:
    """Return the geometric mean of the ratios of several loads.

    Two processes of the same code differ by up to 2 % for as long as they live, which no interval of one load shows.
    So each side takes the wider of Student's interval over the loads and the mean of their own.
    """
    logs = np.log([[each.ratio, *each.ci95] for each in ratios])
    edges = [*logs.mean(axis=0), *intervals.mean_interval(logs[:, 0])]
    return Ratio(ratio=math.exp(edges[0]), ci95=[math.exp(min(edges)), math.exp(max(edges))])


def compare(base: Series, ours: Series, timed: Literal["published", "stressed"] = "published") -> Speedup:
    """Return `speedup` over the gated blocks, with `other_inputs`, the speedup over the blocks with other inputs.

    If the speedup there is lower by more than INPUT_DEPENDENT, it is returned instead, since a solution that is fast
    only on recognised inputs is not fast. The median block decides this.
    """
    ratio = gated(base, ours, trusted=False)
    usual = Speedup(**ratio.to_json(), inputs=timed)
    pairs = list(zip(base.other, ours.other, strict=False))  # a variant that decides nothing may have fewer blocks
    if not pairs:
        return usual
    theirs, mine = [b.device_ms for b, _ in pairs], [o.device_ms for _, o in pairs]
    middle = statistics.median(math.log(b / o) for b, o in zip(theirs, mine, strict=True))
    other = speedup(theirs, mine, [host_term(base), host_term(ours, trusted=False)], trusted=False)
    if middle < math.log(ratio.ratio * (1 - INPUT_DEPENDENT)):
        return Speedup(**other.to_json(), inputs="other", published_inputs=usual)
    return usual.model_copy(update={"other_inputs": other})


def word(ratio: Ratio, noise: float) -> SpeedWord:
    """Return FAST, SLOW, SAME, AMBIGUOUS or UNCONFIRMED, from a speedup's interval and the noise of the A/A control.

    UNCONFIRMED: it would be FAST, but the judge's clock confirms less than 1. SAME: the whole interval lies within the
    noise, or within SAME if that is larger.
    """
    low, high = ratio.ci95
    if low > 1 + noise:
        return "FAST" if ratio.at_least is not None and ratio.at_least > 1 else "UNCONFIRMED"
    if high < 1 - noise:
        return "SLOW"
    edge = max(noise, SAME)
    return "SAME" if 1 - edge <= low and high <= 1 + edge else "AMBIGUOUS"


def noise(control: Ratio | None) -> float:
    """Return how far the A/A control's interval reaches from 1, as a log, without the host's part."""
    return max(abs(math.log(edge)) for edge in control.blocks_ci95 or control.ci95) if control else 0.0
