"""Hardware counters of kernels, as `benchmark --profile` reads them. They decide nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from repro.records.base import Record
from repro.records.result import Observed

Counters = dict[str, Annotated[float, Field(ge=0)] | None]


class Launch(Record):
    """One launch of a profiled call."""

    name: str
    """The kernel's name."""
    values: Counters
    """Counters by the names of METRICS in repro/judge/timing/counters.py; null where ncu gave none."""


class Profile(Record):
    """One call of one kernel in one dtype."""

    kernel: Literal["input_kernel", "optimized"]
    """Which kernel of the artifact."""
    dtype: Literal["bfloat16", "float32"]
    """Of inputs and weights."""
    state: Literal["profiled", "no_ncu", "no_permission", "no_gpu", "not_run", "failed"]
    """`not_run`: the kernel was rejected, raised, died or took too long; `failed`: ncu did."""
    why: str
    """Why it is not profiled, or what is particular about it."""
    ncu: str = ""
    """What ncu says of its version, in older bundles; the fingerprint has it."""
    clock_control: Literal["none"] = "none"
    """ncu leaves the clocks as they are."""
    launches: list[Launch]
    """Every launch of the call."""
    totals: Counters
    """The launches together: durations, bytes and instructions added up, shares weighted by duration, registers,
    threads and blocks the largest."""

    @property
    def told(self) -> str:
        """Return its state and why, in words."""
        return self.state.replace("_", " ") + (f": {self.why}" if self.why else "")


class ProfileResult(Observed):
    """The result of a `profile` job."""

    profiles: list[Profile]
    """Hardware counters of one call of each kernel in each dtype."""
    separation: str | None = None
    """What lay between the launcher and the kernel."""
    confined: dict[str, str] = {}
    """Restriction -> `applied`, or why not."""
    wall_s: float | None = None
    """Seconds that it took, in older bundles."""
