"""An entry of `benchmark --json`: one artifact with its kernels, rounds and profiles."""

from __future__ import annotations

from pydantic import Field

from repro.records.base import Number, Record
from repro.records.profile import Profile
from repro.records.result import Baseline, Ceilings, Parity, Series, Timing, Trial
from repro.records.row import Status
from repro.records.verdict import Ratio, Speedup, Summary, Verdict


class Times(Record):
    """Times by the published script's keys, ms; null without one."""

    eager_ms: Number | None = Field(None, description="Eager torch.")
    compile_ms: Number | None = Field(None, description="torch.compile.")
    input_kernel_ms: Number | None = Field(None, description="The input kernel.")
    optimized_ms: Number | None = Field(None, description="The optimised kernel.")

    @property
    def speedup(self) -> float | None:
        """Return the published script's speedup: torch.compile, else eager, over the optimised kernel."""
        base = self.compile_ms or self.eager_ms
        return base / self.optimized_ms if base and self.optimized_ms else None


class ParityTimes(Parity, Times):
    """Times by the published protocol, also by the published script's keys."""


class Round(Record):
    """The input kernel (round 0) or the kernel of one round."""

    round: int = Field(description="Number of the round; 0 is the input kernel.")
    verdict: str = Field(description="Its verdict, or `not measured`.")
    why: str = Field(description="Why it is not correct, or empty.")
    time_ms: Summary | None = Field(description="Its time here.")
    published_ms: float | None = Field(description="Its time in the trace.")
    published_protocol_ms: Number | None = Field(description="Its time here by the published protocol.")
    over_input: Ratio | None = Field(description="Paired speedup over the input kernel.")
    best: bool = Field(description="Whether it is correct, and faster than every correct kernel before it.")


class Entry(Times):
    """One artifact."""

    problem: str = Field(description="Name of its folder.")
    status: Status = Field(description="Of its row.")
    fingerprint_id: str | None = Field(description="Names the fingerprint of its machine.")
    times_ms: dict[str, Summary] = Field(description="Kernel or baseline -> its time.")
    best_baseline: Speedup | None = Field(description="The optimised kernel over the best torch baseline of its class.")
    floor_ms: float | None = Field(description="The time that this GPU's measured ceilings allow.")
    floor_fraction: float | None = Field(description="`floor_ms` over the optimised kernel's time.")
    kernels: dict[str, Verdict] = Field(description="Kernel -> its result.")
    baselines: dict[str, Baseline] = Field(description="Torch baseline -> its times.")
    samples_ms: dict[str, Series] = Field(description="Implementation -> its samples.")
    parity: ParityTimes | None = Field(description="Times by the published protocol, with `--parity`.")
    no_measurement: str = Field(description="Why its times are no measurement, or empty.")
    reasons: list[str] = Field(description="Everything that is missing or wrong, in words.")
    ceilings: Ceilings | None = Field(None, description="What this GPU was measured to reach.")
    timing: Timing | None = Field(None, description="Facts about the timing.")
    trials: list[Trial] = Field(default_factory=list, description="Input cases with their seeds.")
    margin: Number | None = Field(None, description="The fixture's margin.")
    wall_s: float | None = Field(None, description="Seconds of the judging.")
    rounds: list[Round] = Field(default_factory=list, description="With `--rounds`: every round.")
    profiles: list[Profile] = Field(default_factory=list, description="With `--profile`: hardware counters.")
