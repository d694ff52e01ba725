"""An entry of `benchmark --json`: one artifact with its kernels, rounds and profiles."""

from __future__ import annotations

from repro.records.base import Number, Record
from repro.records.profile import Profile
from repro.records.result import Baseline, Ceilings, Parity, Series, Timing, Trial
from repro.records.row import Status
from repro.records.verdict import Ratio, Speedup, Summary, Verdict


class Times(Record):
    """Times by the published script's keys, ms; null without one."""

    eager_ms: Number | None = None
    """Eager torch."""
    compile_ms: Number | None = None
    """torch.compile."""
    input_kernel_ms: Number | None = None
    """The input kernel."""
    optimized_ms: Number | None = None
    """The optimised kernel."""


class ParityTimes(Parity, Times):
    """Times by the published protocol, also by the published script's keys."""


class Round(Record):
    """The input kernel (round 0) or the kernel of one round."""

    round: int
    """Number of the round; 0 is the input kernel."""
    verdict: str
    """Its verdict, or `not measured`."""
    why: str
    """Why it is not correct, or empty."""
    time_ms: Summary | None
    """Its time here."""
    published_ms: float | None
    """Its time in the trace."""
    published_protocol_ms: Number | None
    """Its time here by the published protocol."""
    over_input: Ratio | None
    """Paired speedup over the input kernel."""
    best: bool
    """Whether it is correct, and faster than every correct kernel before it."""


class Entry(Times):
    """One artifact."""

    problem: str
    """Name of its folder."""
    status: Status
    """Of its row."""
    fingerprint_id: str | None
    """Names the fingerprint of its machine."""
    times_ms: dict[str, Summary]
    """Kernel or baseline -> its time."""
    best_baseline: Speedup | None
    """The optimised kernel over the best torch baseline of its class."""
    floor_ms: float | None
    """The time that this GPU's measured ceilings allow."""
    floor_fraction: float | None
    """`floor_ms` over the optimised kernel's time."""
    kernels: dict[str, Verdict]
    """Kernel -> its result."""
    baselines: dict[str, Baseline]
    """Torch baseline -> its times."""
    samples_ms: dict[str, Series]
    """Implementation -> its samples."""
    parity: ParityTimes | None
    """Times by the published protocol, with `--parity`."""
    no_measurement: str
    """Why its times are no measurement, or empty."""
    reasons: list[str]
    """Everything that is missing or wrong, in words."""
    ceilings: Ceilings | None = None
    """What this GPU was measured to reach."""
    timing: Timing | None = None
    """Facts about the timing."""
    trials: list[Trial] = []
    """Input cases with their seeds."""
    margin: Number | None = None
    """The fixture's margin."""
    wall_s: float | None = None
    """Seconds of the judging."""
    rounds: list[Round] = []
    """With `--rounds`: every round."""
    profiles: list[Profile] = []
    """With `--profile`: hardware counters."""
