"""What a job of the judge returns: the verdicts of its solutions, the baselines beside them, samples and facts."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field, field_validator

from repro.records.base import Amount, Number, Positive, Record, Text, held
from repro.records.verdict import Ratio, Summary, Verdict
from repro.system.jsonio import Json


class Baseline(Record):
    """The times of one torch baseline."""

    time_ms: Summary
    """Device time of one call with a cold L2 cache."""
    latency_ms: Summary | None = None
    """From a waiting host to a finished result."""
    hot_ms: float | None = None
    """Calls back to back on the same inputs, ms, in older bundles."""


class Samples(Record):
    """Samples of timed calls of one kind, ms; lists of equal length."""

    device_ms: list[float]
    """By the GPU's events."""
    host_ms: list[float] = []
    """By the host's clock, launch included."""
    wall_ms: list[float] = []
    """By the judge's clock, with all that it cannot tell apart."""
    seal_ms: list[float] = []
    """Of the commitment to the output."""


class Series(Record):
    """All samples of one implementation."""

    gated: Samples
    """Calls whose launch was hidden; `time_ms` is of them."""
    open: Samples | None = None
    """Calls from a waiting host; `latency_ms` is of them."""
    other: Samples | None = None
    """Calls on inputs other than the published ones."""
    hot_ms: float | None = None
    """Calls back to back on the same inputs, ms, in older bundles."""
    reported_ms: dict[str, float] = {}
    """Number of a gated sample -> the reported time, where the judge's own counts."""


class PowerLimit(Record):
    """How often timed calls waited because the GPU was at its power limit."""

    rests: int
    """Number of waits."""
    rested_s: float
    """Seconds waited."""


class Discarded(Record):
    """A measurement that was discarded, kept whole."""

    solution: str
    """The solution beside which it was taken."""
    code: Text
    """A reason code, or `alone`."""
    detail: str
    """Why it was discarded."""
    launched_late: list[str] = []
    """Implementations with visible launches."""
    samples_ms: dict[str, Series] = {}
    """Its samples."""


# Why a baseline or a pass is left out that the options do not ask for.
NOT_REQUESTED = "not requested for this run"


class Timing(Record):
    """Facts about the timing of a job. Milliseconds by implementation are medians over its calls."""

    status: str = "not_timed"
    """`converged`, `not_converged`, `not_timed`, or why nothing was timed."""
    left_out: dict[str, str] = {}
    """Baseline -> why it was not timed."""
    baseline_classes: dict[str, str] = {}
    """Baseline -> its precision class."""
    compile_s: dict[str, float] = {}
    """Baseline -> seconds of its first calls, in older bundles."""
    compiled_anew: dict[str, int] = {}
    """Baseline -> graphs that torch.compile made for it; 0 where it took all from earlier compilations."""
    compile_ahead_s: dict[str, float] = {}
    """Baseline -> seconds of its compilation beside the trials, in older bundles."""
    inputs: str = ""
    """Which inputs the timed calls saw."""
    other_inputs: list[str] = []
    """Input cases of the calls with other inputs."""
    memory_kept: bool | None = None
    """Whether outputs stayed allocated between calls, in older bundles."""
    launch_ms: dict[str, float] = {}
    """Time until a call was launched."""
    overhead_ms: dict[str, float] = {}
    """Time by the judge's clock that the device time does not explain, in older bundles."""
    seal_ms: dict[str, float] = {}
    """Time of the commitment to the output, in older bundles."""
    launches_not_hidden: list[str] = Field(
        [], validation_alias=AliasChoices("launches_not_hidden", "launches_outlast_gate")
    )
    """Implementations with visible launches."""
    launched_late: list[str] = []
    """Implementations whose launch took longer than the calls before it."""
    gate_us: float | None = None
    """Microseconds for which a gate held the GPU, in older bundles."""
    power_limit: PowerLimit | None = None
    """Waits for the GPU's power limit."""
    inputs_made_again: int | None = None
    """How often inputs were made again on a busy GPU, in older bundles."""
    aa: Ratio | None = None
    """The A/A control: eager over eager in another process."""
    alone: dict[str, float] = {}
    """Baseline -> its time beside the solutions over its time alone."""
    alone_behind_long_gate: float | None = None
    """Largest of these behind a longer gate, in older bundles."""
    timed_again: str | None = None
    """Why everything was timed again."""
    discarded: list[Discarded] = []
    """Measurements that were discarded."""
    clock: str = ""
    """What the clock of the times is."""


class Ceilings(Record):
    """What this GPU was measured to reach, in the same job."""

    copy_tb_s: Positive
    """Copies, TB/s read and written together."""
    read_tb_s: Positive | None = None
    """Reads, TB/s."""
    write_tb_s: Positive | None = None
    """Writes, TB/s."""
    bf16_tflop_s: Positive | None = None
    """Matrix products in bfloat16, TFLOP/s."""
    fp16_tflop_s: Positive | None = None
    """Matrix products in float16, TFLOP/s."""
    tf32_tflop_s: Positive | None = None
    """Matrix products in TF32, TFLOP/s."""
    fp32_tflop_s: Positive | None = None
    """Matrix products in float32, TFLOP/s."""
    cached: bool | None = None
    """Whether a measurement of this GPU was used again, in older bundles."""
    measured_at: str | None = None
    """When it was measured, UTC, in older bundles."""
    limits: dict[str, Amount | None] = {}
    """Clock (MHz) and power (W) limits, in older bundles."""
    clocks: dict[str, Amount | None] = {}
    """Clocks during the measurement, MHz, in older bundles."""


class Trial(Record):
    """One input case with its seed, which was secret while the solution ran."""

    kind: str
    """Kind of the input case."""
    seed: int
    """Seed of the generator."""


class Sizes(Record):
    """The sizes at which a problem was judged."""

    stamp: str
    """In words: `full`, `smoke`, or with the constants that `--shapes` changed."""
    overrides: Json = {}
    """Constant of the problem file -> its value."""


# Baselines of the published speedups and of the published protocol, by their names in a result.
PUBLISHED_BASELINES = ("eager", "compile")


class Parity(Record):
    """Times by the published protocol, which verifies nothing."""

    times_ms: dict[str, Number | None] = {}
    """Variant -> mean time, ms."""
    reasons: dict[str, str] = {}
    """Variant -> why it has no time."""
    protocol: Json = {}
    """How it measures."""
    grad: bool | None = None
    """Whether gradients were on."""
    measurement: bool = False
    """Whether the times are measurements."""
    wall_s: float | None = None
    """Seconds that it took, in older bundles."""


class Spread(Record):
    """The median of samples with their extremes."""

    median: Amount
    """Median."""
    min: Amount
    """Lowest."""
    max: Amount
    """Highest."""


class Window(Record):
    """Samples of a part of a row in short."""

    samples: int = 0
    """How many."""
    sm_mhz: Spread | None = None
    """SM clock, MHz."""
    memory_mhz: Spread | None = None
    """Memory clock, MHz."""
    power_w: Spread | None = None
    """Power, W."""
    temperature_c: Spread | None = None
    """Temperature, °C."""
    reasons: dict[str, float] = {}
    """Clock event reason -> share of samples."""
    deltas: Json = {}
    """Counter -> what it grew by."""


class _Telemetry(Record):
    """What readers need of a row's telemetry."""

    file: str | None = None
    """The series' name in the bundle."""
    windows: dict[str, Window | None] | None = None
    """Part of the job -> its samples in short."""
    sampler: Json = {}
    """How samples were taken."""
    marks: list[Json] = []
    """When the job's parts began."""


class Observed(Record):
    """What every job observes of itself and its GPU."""

    dynamic: dict[str, Json] = {}
    """`before`, `warm`, `timed`, `after` -> the GPU's state, as in a fingerprint."""
    telemetry: Json | None = None
    """The sampler's marks and windows, and its file."""
    cell_spent_s: dict[str, float] = {}
    """Part of the job -> seconds, in older bundles."""

    @field_validator("telemetry", mode="before")
    @classmethod
    def _window_of_the_job(cls, observed: Any) -> Any:
        """The window of a whole job was called `cell` until November 2026."""
        windows = observed.get("windows") if isinstance(observed, dict) else None
        if isinstance(windows, dict) and "cell" in windows:
            windows = {"job" if name == "cell" else name: each for name, each in windows.items()}
            observed = observed | {"windows": windows}
        return held(_Telemetry, observed)


class JudgeResult(Observed):
    """The result of an `evaluate` job."""

    results: list[Verdict]
    """One verdict a solution."""
    baselines: dict[str, Baseline] = {}
    """Torch baseline -> its times."""
    samples_ms: dict[str, Series] = {}
    """Implementation -> its samples, ms."""
    timing: Timing = Timing()
    """Facts about the timing."""
    loads: list[JudgeResult] = []
    """With `--against`: earlier timings of the same solutions, in other processes."""
    ceilings: Ceilings | None = None
    """What this GPU was measured to reach; null on the CPU."""
    trials: list[Trial] = []
    """Input cases with their seeds."""
    trials_left_out: dict[str, str] = {}
    """Kind of input case -> why it is not one."""
    margin: Number | None = None
    """The fixture's margin: best cheat over worst honest kernel."""
    margins: dict[str, Number] = {}
    """The same by precision class."""
    sizes: Sizes | None = None
    """The sizes at which the problem was judged."""
    parity: Parity | None = None
    """Times by the published protocol, with `--parity`."""
    no_measurement: str = ""
    """Why times that were taken are no measurement; readers add it."""
    spent_s: dict[str, float] = {}
    """Part of the judging -> seconds."""
    trials_spent_s: dict[str, float] = {}
    """Kind of input case -> seconds, in older bundles."""
    trials_parts_spent_s: dict[str, float] = {}
    """Part of the trials -> seconds, in older bundles."""
    timing_spent_s: dict[str, float] = {}
    """Part of the timing -> seconds, in older bundles."""
    wall_s: float | None = None
    """Seconds of the judging."""

    @property
    def baselines_ms(self) -> dict[str, float]:
        """Return the median times of the baselines, ms."""
        return {name: each.time_ms.median for name, each in self.baselines.items()}

    @property
    def medians_ms(self) -> dict[str, float]:
        """Return the median times of the solutions and baselines that have one, ms."""
        solutions = {verdict.solution: verdict.time_ms.median for verdict in self.results if verdict.time_ms}
        return solutions | self.baselines_ms

    @property
    def parity_ms(self) -> dict[str, float | None]:
        """Return the times by the published protocol, ms; none without `--parity`."""
        return self.parity.times_ms if self.parity else {}
