"""What paired samples say: a speedup with its interval, and a word for it.

The interval holds what blocks leave open, what differs between two processes of the same code, and, where the GPU waits
for launches, what the host does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from repro.judge import stats
from repro.judge.timing import SYSTEMATIC, Series, slack_ms

# A speedup that falls by more than this where inputs are not the published ones is the one on those.
INPUT_DEPENDENT = 0.05
# Beside SYSTEMATIC every time differs by so much, which only short kernels feel: 23 A/A controls of 5 to 18 us, each
# known to 0.1 us, lay 0.5 us (rms) from 1. 0.75 us for either side make that a 95 % interval.
SYSTEMATIC_MS = 0.00075
# Where the GPU waits for launches a time is the host's, and of what it varies by from call to call, one process keeps a
# part for its life (docs/judging.md). So much of either side's deviation explains how far A/A controls on such hosts
# lay from 1.
HOST_SHARE = 0.45
# Deviation of the log times from which on a solution's calls vary as those do. Of other kernels it is under 0.03.
VARYING = 0.05


def host_term(series: Series, *, trusted: bool = True) -> float:
    """How far from its true log the median of a variant may lie for the host's sake, at 95 %: nothing where most calls
    were launched before their inputs were there. A solution, which could say so of calls that were not, has it too
    where its calls vary as only those do."""
    told = [s.hidden for s in series.gated if s.hidden is not None]
    if not told:
        return 0.0
    spread = statistics.pstdev(math.log(time_ms) for time_ms in series.device_ms)
    hidden = 2 * sum(told) > len(told)
    return 0.0 if hidden and (trusted or spread < VARYING) else HOST_SHARE * spread


def speedup(
    base_ms: list[float], ours_ms: list[float], host_terms: Sequence[float] = (), *, trusted: bool = True
) -> dict[str, Any]:
    """stats.paired_ratio with the difference between processes added to its interval, and the `host_term` of both;
    capped where ours are not torch's.

    at_least: the speedup that the judge's own clock vouches for, if all the time that it cannot tell from overhead were
    the solution's. blocks_ci95: the interval without the host's part, where it has one.
    """
    count = min(len(base_ms), len(ours_ms))  # a variant that decided nothing may have been left behind
    found = stats.paired_ratio(base_ms[:count], ours_ms[:count], capped=not trusted)
    middle = math.log(found["ratio"])
    base, ours = statistics.median(base_ms), statistics.median(ours_ms)
    apart = (SYSTEMATIC, *(min(1.0, SYSTEMATIC_MS / time_ms) for time_ms in (base, ours)))  # nobody knows a nanosecond

    def interval(*terms: float) -> list[float]:
        low, high = (math.hypot(math.log(edge) - middle, *apart, *terms) for edge in found["ci95"])
        return [math.exp(middle - low), math.exp(middle + high)]

    told = {"ci95": interval(*host_terms), "at_least": found["ratio"] * ours / (ours + slack_ms(ours))}
    if any(host_terms):
        told |= {"host_term": round(math.hypot(*host_terms), 4), "blocks_ci95": interval()}
    return found | told


def gated(base: Series, ours: Series, *, trusted: bool = True) -> dict[str, Any]:
    """`speedup` over the gated blocks of two variants. trusted: the second is torch's too."""
    terms = [host_term(base), host_term(ours, trusted=trusted)]
    return speedup(base.device_ms, ours.device_ms, terms, trusted=trusted)


def compare(base: Series, ours: Series) -> dict[str, Any]:
    """`speedup` over the gated blocks, and `other_inputs`, that over the blocks with other inputs.

    inputs: `published`, or `other` where the speedup there is lower by more than INPUT_DEPENDENT: then that one is
    told, because what is fast on recognised inputs alone is not fast. The median block decides whether it is lower.
    """
    found = gated(base, ours, trusted=False) | {"inputs": "published"}
    pairs = list(zip(base.other, ours.other, strict=False))  # of different lengths where a variant was left behind
    if not pairs:
        return found
    theirs, mine = [b.device_ms for b, _ in pairs], [o.device_ms for _, o in pairs]
    middle = statistics.median(math.log(b / o) for b, o in zip(theirs, mine, strict=True))
    other = speedup(theirs, mine, [host_term(base), host_term(ours, trusted=False)], trusted=False)
    if middle < math.log(found["ratio"] * (1 - INPUT_DEPENDENT)):
        return other | {"inputs": "other", "published_inputs": found}
    return found | {"other_inputs": other}


def word(ratio: dict[str, Any], noise: float) -> str:
    """FAST, SLOW, SAME or AMBIGUOUS, from a speedup's interval and the half-width of the A/A control's; UNCONFIRMED for
    what would be fast, where the judge's clock vouches for less than 1.

    SAME: the whole interval lies within the noise, or 1 % where that is larger.
    """
    low, high = ratio["ci95"]
    if low > 1 + noise:
        return "FAST" if ratio["at_least"] > 1 else "UNCONFIRMED"
    if high < 1 - noise:
        return "SLOW"
    edge = max(noise, 0.01)
    return "SAME" if 1 - edge <= low and high <= 1 + edge else "AMBIGUOUS"


def noise(control: dict[str, Any] | None) -> float:
    """How far from 1 the A/A control's interval reaches; the host's part is in the interval of whom it concerns."""
    return max(abs(math.log(edge)) for edge in control.get("blocks_ci95", control["ci95"])) if control else 0.0
