"""One solution as the judge sees it: its verdict with reasons, its distances, times and speedups."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from repro.records.base import Number, Pair, Positive, PositivePair, Record, Text
from repro.records.comparison import ComparedWord
from repro.records.where import Where
from repro.records.workload import Workload
from repro.system.jsonio import Json

VerdictWord = Literal["correct", "incorrect", "rejected", "error", "timeout", "inconclusive", "unjudgeable"]
SpeedWord = Literal["FAST", "SLOW", "SAME", "AMBIGUOUS", "UNCONFIRMED"]
PrecisionClass = Literal["fp32", "tf32", "fp16", "bf16"]


Share = Annotated[float, Field(ge=0, le=1.001)]


class Reason(Record):
    """Why a verdict is what it is. A worker may add facts of its own error."""

    code: Text
    """A reason code: judging.md lists them."""
    detail: str = ""
    """The number and its limit, or the solution's own message."""
    trial: str = ""
    """Kind of the input case, `import` or `timing`."""
    value: Number | None = None
    """The distance that is over its limit."""
    limit: Number | None = None
    """That limit, of the loosest precision class."""
    klass: str | None = Field(None, alias="class")
    """The precision class of the limit."""
    output: str = ""
    """Of several outputs, the one that is over its limit."""


class Summary(Record):
    """A time in milliseconds: median of samples with its 95 % interval."""

    median: Positive
    """ms."""
    ci95: PositivePair
    """95 % interval of the median, ms."""
    iqr: float
    """Interquartile range of the samples, ms."""
    n: int = Field(ge=1)
    """Number of samples."""


class Ratio(Record):
    """A ratio of two paired series of samples, with its 95 % interval."""

    ratio: Positive
    """Geometric mean over blocks."""
    ci95: PositivePair
    """95 % interval of the ratio."""
    blocks: int | None = None
    """Number of paired blocks."""
    at_least: Positive | None = None
    """The ratio that the judge's own clock confirms."""
    capped_blocks: int | None = None
    """Blocks whose time was raised to a bound: 5 %, or 5 median deviations, below the median."""
    host_term: Number | None = None
    """Part of the interval that the host's variation causes, a log."""
    blocks_ci95: Pair | None = None
    """The interval without the host's part."""


class Speedup(Ratio):
    """A speedup over one torch baseline: time of the baseline over time of the solution."""

    inputs: Literal["published", "stressed", "other"] | None = None
    """Those that are timed, or `other`: the solution is slower on these, and that counts."""
    other_inputs: Ratio | None = None
    """The speedup on other inputs."""
    published_inputs: Speedup | None = None
    """The speedup on the inputs that are timed, where `other` counts."""
    latency: Ratio | None = None
    """The ratio of latencies, launch included, in older bundles."""
    word: SpeedWord | None = None
    """Against the noise of the A/A control."""
    baseline: str | None = None
    """In `best_same_class`: the baseline that is the best."""

    @property
    def counted(self) -> Ratio:
        """Return what means count: 1 where the judge's clock does not confirm it. Without it they would be higher."""
        return Ratio(ratio=1.0, ci95=[1.0, 1.0]) if self.word == "UNCONFIRMED" else self


Speedups = dict[str, Speedup]  # by baseline


class Against(Record):
    """How a solution compares with that of `--against`, both timed in turns, in one load or several."""

    solution: str
    """The solution that it is compared with."""
    ratio: Number | None = None
    """Its time over this solution's: above 1, this one is faster."""
    ci95: Pair | None = None
    """95 % interval of the ratio, over all loads."""
    noise: float | None = None
    """How far from 1 the A/A control reaches, as a log."""
    word: ComparedWord | None = None
    """What the interval says of this solution."""
    why: str = ""
    """Why they are not compared, or empty."""


class Distances(Record):
    """Distances of one call's output to the fp64 reference; of several outputs, the largest."""

    rel_l2: Number
    """Relative L2 distance."""
    max: Number
    """Largest distance of one element, over the root mean square of the reference."""
    row: Number
    """Relative L2 distance of the worst row."""
    zero: Number | None = None
    """Distance where the reference is exactly 0."""
    bias: Number | None = None
    """Largest mean error of elements of one sign and magnitude."""
    edit: Number | None = None
    """Part of a change of few inputs that the output does not follow."""
    differ: Number | None = None
    """Share of integers that are others, or of indices that point to nothing or stand twice."""
    outputs: list[Distances] = []
    """Of several outputs, those of each."""


class Neighbour(Record):
    """The verdict at a neighbouring shape, in older bundles."""

    verdict: str | None = None
    """A verdict, or `not_run`."""
    rel_l2: Number | None = None
    """Relative L2 distance there."""
    reason: str | None = None
    """Why there is no distance."""


class KernelTime(Record):
    """One kernel of a profiled call."""

    name: str
    """The kernel's name, cut."""
    klass: str = Field(alias="class")
    """`own`, `other_triton`, or the library that it is of."""
    us: float
    """GPU time of the call in it, microseconds."""
    count: int | None
    """Launches."""


class KernelShares(Record):
    """Shares of GPU time by kind of kernel, as the profiler in the solution's process reports them."""

    own: Share | None
    """Share in kernels that the source defines, 0 to 1."""
    by_class: dict[str, float]
    """Kind of kernel -> share, 0 to 1."""
    kernels: list[KernelTime]
    """The longest kernels."""
    inconsistent: list[str] = []
    """Of earlier bundles: where source and profile contradict each other."""


class KernelBenchVerdict(Record):
    """What KernelBench's own protocol says of a solution. The solution's process reports it; it decides nothing."""

    correct: bool | None = None
    """Whether every trial passed; null if the protocol did not run."""
    passed: int | None = None
    """Trials that passed."""
    trials: int
    """Trials, each with another draw of inputs."""
    tolerance: float
    """Of `allclose`, absolute and relative."""
    ms: float | None = None
    """Mean time of the solution, ms."""
    eager_ms: float | None = None
    """Mean time of the problem's Model, ms."""
    speedup: float | None = None
    """`eager_ms` over `ms`."""
    measurement: bool = False
    """Whether the times are measurements."""
    why: str = ""
    """Why a trial failed, or why there is no verdict."""


class Verdict(Record):
    """One solution: an entry of `results` of `evaluate --json` and of a row's `result`."""

    problem: str
    """the problem's id; `@bf16` for the artifact study"""
    solution: str
    """the solution's file name"""
    verdict: VerdictWord
    """`correct` `incorrect` `rejected` `error` `timeout` `inconclusive` `unjudgeable`"""
    reasons: list[Reason]
    """list of `{code, detail, trial}`; codes: [judging.md](judging.md#reason-codes)"""
    precision_class: PrecisionClass | None = None
    """`fp32`, `tf32` or `bf16`, as measured; null unless correct"""
    rel_l2: Number | None = None
    """the largest relative L2 distance to the fp64 reference over all trials"""
    legacy: dict[str, bool] = {}
    """`allclose_1e-2` and `allclose_1e-4`: whether the published comparison would pass"""
    distances: dict[str, list[Distances]] = {}
    """trial kind -> list of `{rel_l2, max, row}`"""
    where: Where | None = None
    """where a wrong output is wrong: `{wrong, elements, first, patterns, …}`; null if correct"""
    neighbour: Neighbour | None = None
    """the verdict at a neighbouring shape, in older bundles"""
    time_ms: Summary | None = None
    """device time: `{median, ci95, iqr, n}`; null with `time_reason`"""
    time_reason: str | None = None
    """why there is no time"""
    latency_ms: Summary | None = None
    """from a waiting host to a finished result: `{median, ci95, iqr, n}`"""
    hot_ms: float | None = None
    """calls back to back on the same inputs, in older bundles"""
    speedup: Speedups = {}
    """`eager`, `compile`, `best_same_class`, each `{ratio, ci95, at_least, word, …}`"""
    speedup_all: Speedups = {}
    """the same for every baseline"""
    word: SpeedWord | None = None
    """`FAST` `SLOW` `SAME` `AMBIGUOUS` `UNCONFIRMED`: against the best baseline of the same class"""
    floor_ms: float | None = None
    """the time that this GPU's measured ceilings allow"""
    floor_fraction: float | None = None
    """`floor_ms` over the median time"""
    floor_reason: str | None = None
    """why there is no floor"""
    own_kernel_share: Share | None = None
    """share of GPU time in kernels that the source defines, 0 to 1"""
    own_kernel_share_reason: str | None = None
    """why it is not known"""
    kernel_shares: KernelShares | None = None
    """share of GPU time by kind of kernel, in older bundles"""
    findings: list[Reason] = []
    """what was found and does not decide: `nonfinite`, a NaN that the output hides; `drawn_again`, inputs whose result
    rounding decides, which other inputs replaced"""
    kernelbench: KernelBenchVerdict | None = None
    """what KernelBench's own protocol says, with `--parity kernelbench`; decides nothing"""
    labels: list[str] = []
    """what the source uses: `triton`, `cuda_graph`, `torch_fallback`, …"""
    trust: Literal["audited", "dev"] | None = None
    """`audited` or `dev`"""
    separation: Literal["user", "process", "none"] | None = None
    """`user`, `process` or `none`: what lay between judge and solution"""
    confined: dict[str, str] = {}
    """restriction -> `applied`, or why the kernel refused it"""
    measurement: bool = False
    """whether times are measurements; false on the CPU"""
    memory: Json = {}
    """peak memory of the solution's process and of the GPU, bytes, in older bundles"""
    call_bytes: int | None = None
    """GPU memory that a call takes beyond its output, as the judge sees it"""
    modes: list[Json] = []
    """global torch modes before and after the call, in older bundles"""
    sizes: str | None = None
    """the sizes at which it was judged, in `--json`"""
    against: Against | None = None
    """how it compares with the solution of `--against`, in `--json`"""
    workload: Workload = Workload()
    """with `--shapes`: the shape at which it was judged, in `--json`"""
    workloads: list[Verdict] = []
    """with `--shapes`: the verdict at each shape, in `--json`; this one is of them together"""


class CaseOutcome(Record):
    """A case of the self-test: an entry of `cases` of `evaluate --self-test --json`."""

    case: str
    """Suite and file."""
    problem: str
    """The problem's key."""
    catalogue: str
    """Id of the exploit, or empty."""
    verdict: str
    """Its verdict, or `not measured`."""
    reasons: list[Reason]
    """Why it is what it is."""
    precision_class: PrecisionClass | None = None
    """Of a correct one."""
    labels: list[str] = []
    """What the source uses."""
    outcome: str
    """The same in words; `wrong` where it is not the expected one."""
    complaints: list[str]
    """How it differs from the expected one."""
