"""A search: its options and candidates, and the lines of its journal with what each kind of line holds."""

from __future__ import annotations

from dataclasses import field

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from repro.records.base import Number, Record
from repro.records.profile import Counters
from repro.records.session import Opened
from repro.records.verdict import PrecisionClass, Ratio, Reason, Speedups, Summary, VerdictWord


@dataclass(frozen=True)
class Options:
    """The choices that decide a run.

    problem: key, such as `L1_36@bf16`; kernel: address of the input kernel; rounds, beam (programs that are expanded),
    directions (rewrites tried of each in a round), screen (candidates judged quickly in a round), finalists (judged in
    full); minutes, usd: budgets, None without a limit; patience: rounds without a gain after which it ends.
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

    def sentence(self) -> str:
        """Return one line for a person."""
        shares = [f"{name} {value:.0%}" for name, value in
                  (("DRAM", self.dram), ("L1", self.l1), ("L2", self.l2), ("SM", self.sm), ("tensor", self.tensor))
                  if value is not None]  # fmt: skip
        floor = [f"{self.floor_fraction:.0%} of the floor"] if self.floor_fraction is not None else []
        return f"{self.bound} ({', '.join([*shares, *floor, self.source])})"


class Gain(Ratio):
    """The speedup of one program over another. n: samples of each."""

    n: int
    """Samples of each."""


class Judged(Record):
    """What a search keeps of a verdict. outputs: a digest, see judging.check."""

    verdict: VerdictWord
    """The word."""
    reasons: list[str]
    """Code and detail."""
    precision_class: PrecisionClass | None = None
    """As in a verdict."""
    rel_l2: Number | None = None
    """As in a verdict."""
    labels: list[str] = []
    """As in a verdict."""
    outputs: str = ""
    """Digest of the outputs; see `judging.check`."""


class Median(Record):
    """A time, ms."""

    median: float
    """Milliseconds."""


class Timed(Record):
    """What a search keeps of a program's times. samples_ms: device times of gated calls."""

    verdict: VerdictWord
    """The word."""
    reasons: list[str]
    """Code and detail."""
    time_ms: Median | None
    """Of gated calls."""
    floor_ms: float | None
    """As in a verdict."""
    measurement: bool
    """As in a verdict."""
    samples_ms: list[float]
    """Device times of gated calls."""


class Contest(Record):
    """Programs timed beside each other, and the medians of the baselines."""

    programs: dict[str, Timed]
    """By id."""
    baselines_ms: dict[str, float]
    """Medians by name."""
    clock: str
    """As in `timing`."""
    timed_again: str | None = None
    """As in `timing`."""


class Profiled(Record):
    """Hardware counters of the input kernel, as in Profile."""

    state: str
    """As in a profile."""
    why: str
    """Why there are no counters."""
    totals: Counters
    """Over all launches."""


class Proposed(Record):
    """Candidates of a proposer. One with a model adds money and tokens, its calls, and why it gave no more."""

    proposals: list[Proposal] = []
    """Candidates."""
    spent: dict[str, float] = {}
    """Money and tokens of all calls so far."""
    calls: list[dict[str, object]] = []
    """Of a model."""
    reflexions: dict[str, str] = {}
    """Program to text."""
    failed: str = ""
    """Why there are no more."""


class Confirmed(Record):
    """What the final confirmation says of a kernel, as in Verdict; None for what it does not say."""

    verdict: VerdictWord
    """As in a verdict, like all below."""
    reasons: list[Reason]
    """The same."""
    precision_class: PrecisionClass | None
    """The same."""
    rel_l2: Number | None
    """The same."""
    time_ms: Summary | None
    """The same."""
    speedup_all: Speedups | None
    """The same."""
    floor_ms: float | None
    """The same."""
    floor_fraction: float | None
    """The same."""
    measurement: bool | None
    """The same."""
    labels: list[str] | None
    """The same."""


class Confirmation(Record):
    """The final confirmation of the input kernel and the best, or why it failed."""

    input: Confirmed | None = None
    """The input kernel."""
    best: Confirmed | None = None
    """The best program."""
    baselines_ms: dict[str, float] = {}
    """Medians by name."""
    error: str = ""
    """Why it failed."""

    @property
    def ratio(self) -> float | None:
        """Return the speedup of the best by the medians; None if either has no time."""
        first, best = (each.time_ms if each else None for each in (self.input, self.best))
        return first.median / best.median if first and best else None


class Line(Record):
    """A line of a journal: the answer to a request with its seconds by part, or a decision."""

    n: int
    """Number of the line."""
    kind: str
    """Of request or decision."""
    request: object = None
    """What was asked."""
    result: object = None
    """The answer."""
    spent_s: dict[str, float] = {}
    """Seconds by part."""
    facts: object = None
    """The decision."""


class Start(Record):
    """Of the decision to begin, beside the options. entry: of the input kernel."""

    schema_version: int
    """Of the journal."""
    entry: str
    """Of the input kernel."""


class Round(Record):
    """The decision which programs a round expands."""

    round: int
    """From 1."""
    beam: list[str]
    """Programs."""
    diagnoses: dict[str, Diagnosis]
    """By program."""


class Selected(Record):
    """The outcome of a round."""

    round: int
    """From 1."""
    proposed: int
    """How many."""
    finalists: list[str]
    """Judged in full."""
    best: str
    """The fastest so far."""
    best_ms: float | None
    """Its time."""
    gain: Gain | None
    """Over the input kernel."""
    accepted: list[str]
    """Faster than their parent."""


class Stopped(Record):
    """The end of a run."""

    why: str
    """The reason."""
    best: str
    """Program."""
    rounds: int
    """How many."""


OPTIONS = TypeAdapter(Options)
# Results by kind of line.
PROFILED, OPENED, CONTEST = TypeAdapter(Profiled), TypeAdapter(Opened), TypeAdapter(Contest)
AllJudged = dict[str, Judged]  # by program
CHECKED = TypeAdapter(AllJudged)
PROPOSED, CONFIRMED, CLOCK = TypeAdapter(Proposed), TypeAdapter(Confirmation), TypeAdapter(float)
