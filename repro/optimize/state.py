"""What a run knows: its options, the programs that it has seen with their verdicts and times, and the beam."""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.records.base import Record
from repro.records.search import Diagnosis, Gain, Options

INPUT = "input"
STAMP = " (not a measurement)"
# What a search came to where times are of the interpreter.
NO_WINNER = "no winner: the interpreter's times say nothing of a GPU's"
NOT_JUDGED, DUPLICATE, REFUSED, SCREENED = "not judged", "duplicate", "refused", "screened"


@dataclass
class Program:
    """A kernel that the run has seen, accepted or not.

    verdict: the judge's, or one of NOT_JUDGED, DUPLICATE, REFUSED and SCREENED (right in the one trial of a screening).
    id: `input`, or round and number (`r2.c07`); address: SHA-256 of its source; ast: hash without formatting. quick:
    its speedup over its parent in the screening. gain and better: its speedups over the input kernel and over its
    parent in full, with intervals.
    """

    id: str
    address: str
    ast: str
    entry: str
    parent: str | None = None
    proposer: str = ""
    strategy: str = ""
    kind: str = ""
    params: dict[str, int] = field(default_factory=dict)
    why: str = ""
    round: int = 0
    verdict: str = NOT_JUDGED
    reason: str = ""
    quick: float | None = None
    time_ms: float | None = None
    gain: Gain | None = None
    better: Gain | None = None
    floor_ms: float | None = None
    accepted: bool = False
    transcript: dict[str, str] = field(default_factory=dict)
    mends: str = ""

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def passed(self) -> bool:
        """Return whether it is correct, as far as it was looked at."""
        return self.verdict in ("correct", SCREENED)

    @property
    def parent_id(self) -> str:
        """Return the program that it was made of, which it is compared with."""
        return self.parent or INPUT

    @property
    def ratio(self) -> float:
        """Return its speedup over the input kernel, 0 if it was not timed in full."""
        return self.gain.ratio if self.gain else 0.0

    def facts(self) -> dict[str, object]:
        """Return what the manifest keeps of it."""
        found = {name: value for name, value in vars(self).items() if name != "transcript"}
        return {name: value.to_json() if isinstance(value, Record) else value for name, value in found.items()}


@dataclass
class State:
    """The programs of a run by id, in the order of their proposal, and where the run stands."""

    options: Options
    programs: dict[str, Program] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    beam: list[str] = field(default_factory=list)
    best: str = INPUT
    round: int = 0
    spent: dict[str, float] = field(default_factory=lambda: {"usd": 0.0, "tokens": 0.0})  # by a model

    @property
    def winner(self) -> Program:
        """Return the best program so far, at first the input kernel."""
        return self.programs[self.best]

    def source(self, program: str) -> str:
        """Return the text of a program."""
        return self.sources[self.programs[program].address]

    def known(self, address: str, ast: str) -> Program | None:
        """Return the program with this text, or this syntax tree."""
        return next((p for p in self.programs.values() if p.address == address or (ast and p.ast == ast)), None)

    def of(self, parent: str, strategy: str | None = None) -> list[Program]:
        """Return the candidates that were made of a program, by one strategy or by all."""
        return [p for p in self.programs.values() if p.parent == parent and strategy in (None, p.strategy)]

    def choose_beam(self) -> list[str]:
        """Return the programs to expand: accepted ones by their speedup, then the fastest others; no text twice.

        A program that nothing can be made of still counts; the proposers say when nothing is left.
        """
        timed = [p for p in self.programs.values() if p.correct and (p.gain or p.id == INPUT)]
        timed.sort(key=lambda p: (not (p.accepted or p.id == INPUT), -(p.ratio or 1.0)))
        distinct = dict[str, str]()
        for program in timed:
            distinct.setdefault(program.ast, program.id)
        return [*distinct.values()][: self.options.beam]
