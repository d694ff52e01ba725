"""One solution as the judge sees it: its verdict with reasons, its distances, times and speedups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from repro.records.base import Number, Pair, Positive, PositivePair, Record, Text
from repro.records.comparison import ComparedWord
from repro.records.where import Where

VerdictWord = Literal["correct", "incorrect", "rejected", "error", "timeout", "inconclusive", "unjudgeable"]
SpeedWord = Literal["FAST", "SLOW", "SAME", "AMBIGUOUS", "UNCONFIRMED"]
PrecisionClass = Literal["fp32", "tf32", "bf16"]


Share = Annotated[float, Field(ge=0, le=1.001)]


class Reason(Record):
    """Why a verdict is what it is. A worker may add facts of its own error."""

    code: Text = Field(description="A reason code: judging.md lists them.")
    detail: str = Field("", description="The number and its limit, or the solution's own message.")
    trial: str = Field("", description="Kind of the input case, `import` or `timing`.")
    value: Number | None = Field(None, description="The distance that is over its limit.")
    limit: Number | None = Field(None, description="That limit, of the loosest precision class.")
    klass: str | None = Field(None, alias="class", description="The precision class of the limit.")
    output: str = Field("", description="Of several outputs, the one that is over its limit.")


class Summary(Record):
    """A time in milliseconds: median of samples with its 95 % interval."""

    median: Positive = Field(description="ms.")
    ci95: PositivePair = Field(description="95 % interval of the median, ms.")
    iqr: float = Field(description="Interquartile range of the samples, ms.")
    n: int = Field(ge=1, description="Number of samples.")


class Ratio(Record):
    """A ratio of two paired series of samples, with its 95 % interval."""

    ratio: Positive = Field(description="Geometric mean over blocks.")
    ci95: PositivePair = Field(description="95 % interval of the ratio.")
    blocks: int | None = Field(None, description="Number of paired blocks.")
    at_least: Positive | None = Field(None, description="The ratio that the judge's own clock confirms.")
    capped_blocks: int | None = Field(
        None, description="Blocks whose time was raised to a bound: 5 %, or 5 median deviations, below the median."
    )
    host_term: Number | None = Field(None, description="Part of the interval that the host's variation causes, a log.")
    blocks_ci95: Pair | None = Field(None, description="The interval without the host's part.")


class Speedup(Ratio):
    """A speedup over one torch baseline: time of the baseline over time of the solution."""

    inputs: Literal["published", "other"] | None = Field(
        None, description="`other`: the solution is slower on inputs other than the published ones, and that counts."
    )
    other_inputs: Ratio | None = Field(None, description="The speedup on other inputs.")
    published_inputs: Speedup | None = Field(None, description="The speedup on published inputs, where `other` counts.")
    latency: Ratio | None = Field(None, description="The ratio of latencies: launch included.")
    word: SpeedWord | None = Field(None, description="Against the noise of the A/A control.")
    baseline: str | None = Field(None, description="In `best_same_class`: the baseline that is the best.")


class Against(Record):
    """How a solution compares with that of `--against`, both timed in turns in one session."""

    solution: str = Field(description="The solution that it is compared with.")
    ratio: Number | None = Field(None, description="Its time over this solution's: above 1, this one is faster.")
    ci95: Pair | None = Field(None, description="95 % interval of the ratio.")
    noise: float | None = Field(None, description="How far from 1 the A/A control reaches, as a log.")
    word: ComparedWord | None = Field(None, description="What the interval says of this solution.")
    why: str = Field("", description="Why they are not compared, or empty.")


class Distances(Record):
    """Distances of one call's output to the fp64 reference; of several outputs, the largest."""

    rel_l2: Number = Field(description="Relative L2 distance.")
    max: Number = Field(description="Largest distance of one element, over the root mean square of the reference.")
    row: Number = Field(description="Relative L2 distance of the worst row.")
    zero: Number | None = Field(None, description="Distance where the reference is exactly 0.")
    bias: Number | None = Field(None, description="Largest mean error of elements of one sign and magnitude.")
    edit: Number | None = Field(None, description="Part of a change of few inputs that the output does not follow.")
    differ: Number | None = Field(
        None, description="Share of integers that are others, or of indices that point to nothing or stand twice."
    )
    outputs: list[Distances] = Field(default_factory=list, description="Of several outputs, those of each.")


class Neighbour(Record):
    """The verdict at a neighbouring shape. It informs only."""

    verdict: str | None = Field(None, description="A verdict, or `not_run`.")
    rel_l2: Number | None = Field(None, description="Relative L2 distance there.")
    reason: str | None = Field(None, description="Why there is no distance.")


class KernelTime(Record):
    """One kernel of a profiled call."""

    name: str = Field(description="The kernel's name, cut.")
    klass: str = Field(alias="class", description="`own`, `other_triton`, or the library that it is of.")
    us: float = Field(description="GPU time of the call in it, microseconds.")
    count: int | None = Field(description="Launches.")


class KernelShares(Record):
    """Shares of GPU time by kind of kernel, as the profiler in the solution's process reports them."""

    own: Share | None = Field(description="Share in kernels that the source defines, 0 to 1.")
    by_class: dict[str, float] = Field(description="Kind of kernel -> share, 0 to 1.")
    kernels: list[KernelTime] = Field(description="The longest kernels.")
    inconsistent: list[str] = Field(description="Where source and profile contradict each other.")


class KernelBenchVerdict(Record):
    """What KernelBench's own protocol says of a solution. The solution's process reports it; it decides nothing."""

    correct: bool | None = Field(None, description="Whether every trial passed; null if the protocol did not run.")
    passed: int | None = Field(None, description="Trials that passed.")
    trials: int = Field(description="Trials, each with another draw of inputs.")
    tolerance: float = Field(description="Of `allclose`, absolute and relative.")
    ms: float | None = Field(None, description="Mean time of the solution, ms.")
    eager_ms: float | None = Field(None, description="Mean time of the problem's Model, ms.")
    speedup: float | None = Field(None, description="`eager_ms` over `ms`.")
    measurement: bool = Field(False, description="Whether the times are measurements.")
    why: str = Field("", description="Why a trial failed, or why there is no verdict.")


class Verdict(Record):
    """One solution: an entry of `results` of `evaluate --json` and of a row's `result`."""

    problem: str = Field(description="the problem's id; `@bf16` for the artifact study")
    solution: str = Field(description="the solution's file name")
    verdict: VerdictWord = Field(
        description="`correct` `incorrect` `rejected` `error` `timeout` `inconclusive` `unjudgeable`"
    )
    reasons: list[Reason] = Field(
        description="list of `{code, detail, trial}`; codes: [judging.md](judging.md#reason-codes)"
    )
    precision_class: PrecisionClass | None = Field(
        None, description="`fp32`, `tf32` or `bf16`, as measured; null unless correct"
    )
    rel_l2: Number | None = Field(
        None, description="the largest relative L2 distance to the fp64 reference over all trials"
    )
    legacy: dict[str, bool] = Field(
        default_factory=dict,
        description="`allclose_1e-2` and `allclose_1e-4`: whether the published comparison would pass",
    )
    distances: dict[str, list[Distances]] = Field(
        default_factory=dict, description="trial kind -> list of `{rel_l2, max, row}`"
    )
    where: Where | None = Field(
        None, description="where a wrong output is wrong: `{wrong, elements, first, patterns, …}`; null if correct"
    )
    neighbour: Neighbour | None = Field(None, description="the verdict at the neighbouring shape; informs only")
    time_ms: Summary | None = Field(None, description="device time: `{median, ci95, iqr, n}`; null with `time_reason`")
    time_reason: str | None = Field(None, description="why there is no time")
    latency_ms: Summary | None = Field(
        None, description="from a waiting host to a finished result: `{median, ci95, iqr, n}`"
    )
    hot_ms: float | None = Field(None, description="calls back to back on the same inputs")
    speedup: dict[str, Speedup] = Field(
        default_factory=dict,
        description="`eager`, `compile`, `best_same_class`, each `{ratio, ci95, at_least, word, …}`",
    )
    speedup_all: dict[str, Speedup] = Field(default_factory=dict, description="the same for every baseline")
    word: SpeedWord | None = Field(
        None,
        description="`FAST` `SLOW` `SAME` `AMBIGUOUS` `UNCONFIRMED`: against the best baseline of the same class",
    )
    floor_ms: float | None = Field(None, description="the time that this GPU's measured ceilings allow")
    floor_fraction: float | None = Field(None, description="`floor_ms` over the median time")
    floor_reason: str | None = Field(None, description="why there is no floor")
    own_kernel_share: Share | None = Field(
        None, description="share of GPU time in kernels that the source defines, 0 to 1"
    )
    own_kernel_share_reason: str | None = Field(None, description="why it is not known")
    kernel_shares: KernelShares | None = Field(None, description="share of GPU time by kind of kernel")
    findings: list[Reason] = Field(
        default_factory=list, description="what was found and does not decide: `nonfinite`, a NaN that the output hides"
    )
    kernelbench: KernelBenchVerdict | None = Field(
        None, description="what KernelBench's own protocol says, with `--parity kernelbench`; decides nothing"
    )
    labels: list[str] = Field(
        default_factory=list, description="what the source uses: `triton`, `cuda_graph`, `torch_fallback`, …"
    )
    trust: Literal["audited", "dev"] | None = Field(None, description="`audited` or `dev`")
    separation: Literal["user", "process", "none"] | None = Field(
        None, description="`user`, `process` or `none`: what lay between judge and solution"
    )
    confined: dict[str, str] = Field(
        default_factory=dict, description="restriction -> `applied`, or why the kernel refused it"
    )
    measurement: bool = Field(False, description="whether times are measurements; false on the CPU")
    memory: dict[str, Any] = Field(
        default_factory=dict, description="peak memory of the solution's process and of the GPU, bytes"
    )
    modes: list[dict[str, Any]] = Field(
        default_factory=list,
        description="global torch modes before and after the call, as the solution's process reports them",
    )
    sizes: str | None = Field(None, description="the sizes at which it was judged, in `--json`")
    against: Against | None = Field(None, description="how it compares with the solution of `--against`, in `--json`")


class CaseOutcome(Record):
    """A case of the self-test: an entry of `cases` of `evaluate --self-test --json`."""

    case: str = Field(description="Suite and file.")
    problem: str = Field(description="The problem's key.")
    catalogue: str = Field(description="Id of the exploit, or empty.")
    verdict: str = Field(description="Its verdict, or `not measured`.")
    reasons: list[Reason] = Field(description="Why it is what it is.")
    precision_class: PrecisionClass | None = Field(None, description="Of a correct one.")
    labels: list[str] = Field(default_factory=list, description="What the source uses.")
    outcome: str = Field(description="The same in words; `wrong` where it is not the expected one.")
    complaints: list[str] = Field(description="How it differs from the expected one.")
