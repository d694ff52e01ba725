"""The records that a document is made of: cards, banners, and sections of text, tables and figures.

Every renderer draws these alone, so that a terminal, a page and a paper say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from repro.artifacts.trace import Facts
from repro.records.base import Amount, Number, Pair, Record


class Quantity(Record):
    """A value with its 95 % interval. unconfirmed: a speedup that the judge's clock does not confirm."""

    value: Number
    ci95: Pair
    unconfirmed: bool = False


class Spread(Record):
    """The median of samples with their extremes."""

    median: Amount
    min: Amount
    max: Amount


Cell = str | Amount | Quantity | Spread | None
# Title of a column of text, or title and kind of `cells`.
Head = str | tuple[str, str]


class Column(Record):
    """A column. kind: how `cells` writes it; low, high: the ends of the axis of bars."""

    title: str
    kind: str
    low: float = 1.0
    high: float = 1.0


class Table(Record):
    """A table, of which the first column names the row."""

    id: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]


class Point(Record):
    """A ratio with its interval in a row of a forest."""

    series: str
    value: float
    low: float
    high: float
    unconfirmed: bool = False


class ForestRow(Record):
    """A row of a forest, with the tolerated band behind its points."""

    label: str
    points: list[Point]
    band: Pair | None


class Forest(Record):
    """Ratios with intervals beside a line. series: of a point -> its name; x: label of the axis."""

    rows: list[ForestRow]
    series: dict[str, str]
    line: float
    x: str


class Bars(Record):
    """A group of bars for each solution. series: baseline -> a speedup for each group."""

    groups: list[str]
    series: dict[str, list[Quantity | None]]
    x: str


class Reached(Record):
    """A solution under a roofline. x: operations a byte; y: TFLOP/s."""

    label: str
    series: str
    x: float
    y: float


class Roofline(Record):
    """Solutions under measured ceilings. roofs: precision class -> TFLOP/s."""

    points: list[Reached]
    copy_tb_s: float
    roofs: dict[str, float]


class TimelineRow(Record):
    """A row of a bundle on the axis of a timeline. timed_s: what was timed; throttled: why it is."""

    row: str
    number: int
    begin_s: float
    end_s: float
    bin_s: float
    timed_s: list[float] | None
    throttled: str


# `min`, `median`, `max` -> a value for each bin.
Panel = dict[str, list[int | None]]


class Bins(Record):
    """Samples in bins. t_s: the middle of each; row: the row's number."""

    t_s: list[float]
    row: list[int]
    sm_mhz: Panel | None = None
    memory_mhz: Panel | None = None
    power_w: Panel | None = None
    temperature_c: Panel | None = None


class Timeline(Record):
    """Clocks during rows. reasons: clock event reason -> bins that have it; slowing: reasons that throttle."""

    rows: list[TimelineRow]
    bins: Bins
    reasons: dict[str, list[int]]
    slowing: list[str]


class Candidate(Record):
    """A timed program of a search. full: timed beside the input kernel, not only screened; told: its text."""

    id: str
    parent: str | None
    round: int
    time_ms: float
    accepted: bool
    best: bool
    full: bool
    told: str


class Tree(Record):
    """Candidates of a search. stamp: whether times are no measurement; best: round -> shortest time so far, ms."""

    points: list[Candidate]
    stamp: bool
    best: dict[int, float]


class Convergence(Record):
    """A trace."""

    facts: Facts


class Figure(Record):
    """A figure. kind: how `plots` draws it; alt: what it shows, in words; data: what it is drawn from."""

    id: str
    kind: Literal["forest", "bars", "roofline", "timeline", "search", "convergence"]
    title: str
    alt: str
    data: Forest | Bars | Roofline | Timeline | Tree | Convergence


class Section(Record):
    """A section. paper: whether markdown and LaTeX print it; open: whether it is shown without a click."""

    id: str
    title: str
    text: list[str]
    figures: list[Figure]
    tables: list[Table]
    paper: bool
    open: bool


class Card(Record):
    """One figure of a report's head. tone: good, bad, open, or "" where it is no judgement."""

    label: str
    value: str
    detail: str
    tone: str


Kind = Literal["error", "warning", "note"]


class Banner(Record):
    """A sentence that must be read before any number. kind: error (do not trust this), warning or note."""

    kind: Kind
    text: str


def table(name: str, caption: str, columns: Iterable[Sequence[str]], rows: Iterable[Sequence[Cell]]) -> Table:
    """Make a table. columns: a Head each. name: unique in the document.

    A column in which every cell is empty is left out.
    """
    pairs = [(each, "text") if isinstance(each, str) else each for each in columns]
    heads = [Column(title=title, kind=kind) for title, kind in pairs]
    lines = list(rows)
    assert all(len(line) == len(heads) for line in lines), name
    kept = [at for at in range(len(heads)) if not at or any(line[at] not in (None, "") for line in lines)]
    return Table(
        id=name, caption=caption, columns=[heads[at] for at in kept], rows=[[line[at] for at in kept] for line in lines]
    )


def section(
    name: str, title: str, *, text: Iterable[str] = (), figures: Iterable[Figure] = (), tables: Iterable[Table] = (),
    paper: bool = True, opened: bool = False,
) -> Section:  # fmt: skip
    """Make a section. Tables without rows are left out."""
    return Section(id=name, title=title, text=list(text), figures=list(figures),
                   tables=[each for each in tables if each.rows], paper=paper, open=opened)  # fmt: skip


def holds(section: Section) -> bool:
    """Whether a section has anything to show."""
    return bool(section.text or section.figures or section.tables)


def card(label: str, value: str, detail: str = "", tone: str = "") -> Card:
    """Make a card."""
    return Card(label=label, value=value, detail=detail, tone=tone)


def count(number: int, one: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {one}{'' if number == 1 else 's'}"
