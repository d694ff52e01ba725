"""A search: its options and candidates, and the lines of its journal with what each kind of line holds."""

from __future__ import annotations

from dataclasses import field

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from repro.records.base import Number, Record
from repro.records.profile import Counters
from repro.records.session import Opened
from repro.records.verdict import PrecisionClass, Ratio, Reason, Speedup, Summary, VerdictWord


@dataclass(frozen=True)
class Options:
    """The choices that decide a run.

    problem: key, such as `L1_36@bf16`; kernel: address of the input kernel; rounds, beam (programs that are expanded),
    directions (rewrites tried of each in a round), screen (candidates judged quickly in a round), finalists (judged in
    full); minutes, usd and tokens: budgets, None without a limit; patience: rounds without a gain after which it
    ends; ptx: compile candidates of `search` first, and drop those with a known one's PTX.
    """

    problem: str
    size: str
    dtype: str
    device: str
    kernel: str
    proposers: tuple[str, ...] = ("search",)
    rounds: int = 8
    beam: int = 2
    directions: int = 2
    screen: int = 40
    finalists: int = 4
    minutes: float | None = 10.0
    patience: int = 3
    seed: int = 0
    model: str = ""
    usd: float | None = None
    tokens: int | None = None
    ptx: bool = False


@dataclass(frozen=True)
class Proposal:
    """A candidate as a proposer gives it; in a journal, source is its address.

    kind: E if it must keep every bit of its parent's outputs, else R or P. params: knobs that were turned. transcript:
    file name of the published layout -> text of a prompt or reply that led to it. mends: the failed candidate of which
    it is a repair.
    """

    source: str
    entry: str
    parent: str
    strategy: str
    kind: str = "P"
    params: dict[str, int] = field(default_factory=dict)
    why: str = ""
    transcript: dict[str, str] = field(default_factory=dict)
    mends: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """bound: memory, compute, latency or unknown. Shares are 0 to 1, None if unknown. source: where they come from."""

    bound: str
    source: str
    dram: float | None = None
    l1: float | None = None
    l2: float | None = None
    sm: float | None = None
    tensor: float | None = None
    floor_ms: float | None = None
    floor_fraction: float | None = None
    occupancy: float | None = None

    def sentence(self) -> str:
        """Return one line for a person."""
        shares = [f"{name} {value:.0%}" for name, value in
                  (("DRAM", self.dram), ("L1", self.l1), ("L2", self.l2), ("SM", self.sm), ("tensor", self.tensor))
                  if value is not None]  # fmt: skip
        floor = [f"{self.floor_fraction:.0%} of the floor"] if self.floor_fraction is not None else []
        floor += [f"occupancy {self.occupancy:.0%}, computed"] if self.occupancy is not None else []
        return f"{self.bound} ({', '.join([*shares, *floor, self.source])})"


class Gain(Ratio):
    """The speedup of one program over another. n: samples of each."""

    n: int


class Judged(Record):
    """What a search keeps of a verdict. outputs: a digest, see judging.check."""

    verdict: VerdictWord
    reasons: list[str]
    precision_class: PrecisionClass | None = None
    rel_l2: Number | None = None
    labels: list[str] = []
    outputs: str = ""


class Median(Record):
    """A time, ms."""

    median: float


class Timed(Record):
    """What a search keeps of a program's times. samples_ms: device times of gated calls."""

    verdict: VerdictWord
    reasons: list[str]
    time_ms: Median | None
    floor_ms: float | None
    measurement: bool
    samples_ms: list[float]


class Contest(Record):
    """Programs timed beside each other, and the medians of the baselines."""

    programs: dict[str, Timed]
    baselines_ms: dict[str, float]
    clock: str
    timed_again: str | None = None


class Profiled(Record):
    """Hardware counters of the input kernel, as in Profile."""

    state: str
    why: str
    totals: Counters


class CompiledKernel(Record):
    """A launch: hash of its PTX, grid, and what it takes of a multiprocessor."""

    name: str
    ptx: str
    grid: list[int]
    warps: int
    shared_bytes: int
    registers: int | None
    occupancy: float | None


class Compiled(Record):
    """What a candidate compiles to, or the error. ptx: hash over all launches."""

    ptx: str = ""
    kernels: list[CompiledKernel] = []
    error: str = ""


class Proposed(Record):
    """Candidates of a proposer. One with a model adds money and tokens, its calls, and why it gave no more."""

    proposals: list[Proposal]
    spent: dict[str, float]
    calls: list[dict[str, object]] = []
    reflexions: dict[str, str] = {}
    failed: str = ""


class Confirmed(Record):
    """What the final confirmation says of a kernel, as in Verdict; None for what it does not say."""

    verdict: VerdictWord
    reasons: list[Reason]
    precision_class: PrecisionClass | None
    rel_l2: Number | None
    time_ms: Summary | None
    speedup_all: dict[str, Speedup] | None
    floor_ms: float | None
    floor_fraction: float | None
    measurement: bool | None
    labels: list[str] | None


class Confirmation(Record):
    """The final confirmation of the input kernel and the best, or why it failed."""

    input: Confirmed | None = None
    best: Confirmed | None = None
    baselines_ms: dict[str, float] = {}
    error: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the speedup of the best by the medians; None if either has no time."""
        first, best = (each.time_ms if each else None for each in (self.input, self.best))
        return first.median / best.median if first and best else None


class Line(Record):
    """A line of a journal: the answer to a request with its seconds by part, or a decision."""

    n: int
    kind: str
    request: object = None
    result: object = None
    spent_s: dict[str, float] = {}
    facts: object = None


class Start(Record):
    """Of the decision to begin, beside the options. entry: of the input kernel."""

    schema_version: int
    entry: str


class Round(Record):
    """The decision which programs a round expands."""

    round: int
    beam: list[str]
    diagnoses: dict[str, Diagnosis]


class Selected(Record):
    """The outcome of a round."""

    round: int
    proposed: int
    finalists: list[str]
    best: str
    best_ms: float | None
    gain: Gain | None
    accepted: list[str]


class Stopped(Record):
    """The end of a run."""

    why: str
    best: str
    rounds: int


OPTIONS = TypeAdapter(Options)
# Results by kind of line.
PROFILED, OPENED, CONTEST = TypeAdapter(Profiled), TypeAdapter(Opened), TypeAdapter(Contest)
CHECKED, COMPILED = TypeAdapter(dict[str, Judged]), TypeAdapter(dict[str, Compiled])
PROPOSED, CONFIRMED, CLOCK = TypeAdapter(Proposed), TypeAdapter(Confirmation), TypeAdapter(float)
