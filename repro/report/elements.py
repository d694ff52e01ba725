"""What a document is made of: cards, banners, and sections of sentences, tables and figures; and how a cell is written.

Every renderer draws these alone, so that a terminal, a page and a paper say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from repro.records.base import Amount, Drawn, Number, Pair
from repro.records.result import Spread
from repro.records.verdict import Speedup


class Quantity(Drawn):
    """A value with its 95 % interval. unconfirmed: a speedup that the judge's clock does not confirm."""

    value: Number
    ci95: Pair
    unconfirmed: bool = False


Cell = str | Amount | Quantity | Spread | None
# Title of a column of text; title and kind of `_NUMBERS`, "code" or "verdict"; or these and its rank.
Head = str | tuple[str | int, ...]


class Column(Drawn):
    """A column. kind: how a cell of it is written.

    rank: a narrow terminal leaves out the columns of the highest rank first; 0 is always shown.
    """

    title: str
    kind: str
    rank: int


class Table(Drawn):
    """A table, of which the first column names the row."""

    id: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]

    def only(self, kept: list[int]) -> Table:
        """Return it with these columns."""
        rows = [[row[at] for at in kept] for row in self.rows]
        return self.model_copy(update={"columns": [self.columns[at] for at in kept], "rows": rows})


class Point(Quantity):
    """A ratio with its interval in a row of a forest."""

    series: str


class ForestRow(Drawn):
    """A row of a forest."""

    label: str
    points: list[Point]


class Forest(Drawn):
    """Ratios with intervals beside 1. series: of a point -> its name."""

    rows: list[ForestRow]
    series: dict[str, str]


class Candidate(Drawn):
    """A timed program of a search. full: timed beside the input kernel, not only screened; text: what it says."""

    several_lines: ClassVar = ("text",)
    id: str
    parent: str | None
    round: int
    time_ms: float
    accepted: bool
    best: bool
    full: bool
    text: str


class Tree(Drawn):
    """Candidates of a search. stamp: whether times are no measurement; best: round -> shortest time so far, ms."""

    points: list[Candidate]
    stamp: bool
    best: dict[int, float]


class Figure(Drawn):
    """A figure. alt: what it shows, in words; data: what it is drawn from."""

    id: str
    title: str
    alt: str
    data: Forest | Tree


Tone = Literal["good", "bad", "open", ""]


class Item(Drawn):
    """A sentence on one thing, with the sign of its tone."""

    tone: Tone
    text: str


class Code(Drawn):
    """A judged source. reasons: why it is not correct; changes: from the input kernel, as a unified difference."""

    several_lines: ClassVar = ("text", "changes")
    problem: str
    title: str
    verdict: str
    reasons: list[str]
    text: str
    changes: str


class Section(Drawn):
    """A section. codes: sources, which the page alone draws; paper: whether markdown and LaTeX print it.

    open: whether it is shown without a click.
    """

    id: str
    title: str
    text: list[str]
    items: list[Item]
    figures: list[Figure]
    tables: list[Table]
    codes: list[Code] = []
    paper: bool
    open: bool

    @property
    def holds(self) -> bool:
        """Whether it has anything to show."""
        return bool(self.text or self.items or self.figures or self.tables or self.codes)


class Card(Drawn):
    """One figure of a report's head. tone: "" where it is no judgement."""

    label: str
    value: str
    detail: str
    tone: Tone


Kind = Literal["error", "warning", "note"]


class Banner(Drawn):
    """A sentence that must be read before any number. kind: error (do not trust this), warning or note."""

    kind: Kind
    text: str


def table(name: str, caption: str, columns: Iterable[Sequence[str | int]], rows: Iterable[Sequence[Any]]) -> Table:
    """Make a table. name: unique in the document. Its record holds every cell to `Cell`.

    A column in which every cell is empty is left out. Without a rank, the first column and verdicts stay on a narrow
    terminal, and of the others the last go first.
    """
    heads = []
    for at, head in enumerate(columns):
        title, kind, *rank = (head, "text") if isinstance(head, str) else head
        heads.append(Column(title=str(title), kind=str(kind), rank=int(rank[0]) if rank else at * (kind != "verdict")))
    every = Table(id=name, caption=caption, columns=heads, rows=[list(line) for line in rows])
    return every.only(
        [at for at, _ in enumerate(heads) if not at or any(line[at] not in (None, "") for line in every.rows)]
    )


def section(
    name: str, title: str, *, text: Iterable[str] = (), items: Iterable[Item] = (), figures: Iterable[Figure] = (),
    tables: Iterable[Table] = (), codes: Iterable[Code] = (), note: str = "", paper: bool = True, opened: bool = False,
) -> Section:  # fmt: skip
    """Make a section. Tables without rows are left out. note: a further sentence where a table remains."""
    filled = [each for each in tables if each.rows]
    return Section(id=name, title=title, text=[*text, *[note] * bool(note and filled)], items=list(items),
                   figures=list(figures), tables=filled, codes=list(codes), paper=paper, open=opened)  # fmt: skip


def tabled(
    name: str, title: str, caption: str, columns: Iterable[Sequence[str | int]], rows: Iterable[Sequence[Any]],
    *, text: Iterable[str] = (), note: str = "", paper: bool = True,
) -> Section:  # fmt: skip
    """Make a section of one table, which has its name. text, note, paper: as for `section`."""
    return section(name, title, text=text, tables=[table(name, caption, columns, rows)], note=note, paper=paper)


def card(label: str, value: str, detail: str = "", tone: Tone = "") -> Card:
    """Make a card."""
    return Card(label=label, value=value, detail=detail, tone=tone)


def count(number: int, one: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def quantity(value: float | None, ci95: list[float] | None) -> Quantity | None:
    """A value with its interval as a cell; None where it lacks either."""
    return None if value is None or ci95 is None else Quantity(value=value, ci95=ci95)


def speedup(ratio: Speedup | None) -> Quantity | None:
    """A speedup of a verdict as a cell."""
    if ratio is None:
        return None
    unconfirmed = {"unconfirmed": True} if ratio.word == "UNCONFIRMED" else {}
    return Quantity(value=ratio.ratio, ci95=ratio.ci95, **unconfirmed)


def forest(name: str, title: str, lead: str, rows: list[ForestRow], series: dict[str, str]) -> list[Figure]:
    """Ratios with intervals beside 1 as a figure, if there are any. lead: what its words begin with."""
    words = "; ".join(f"{row.label} {', '.join(_spoken(point, len(series)) for point in row.points)}" for row in rows)
    data = Forest(rows=rows, series=series)
    return [Figure(id=name, title=title, alt=f"{lead}: {words}.", data=data)] * bool(rows)


def _spoken(point: Point, series: int) -> str:
    """`1.20x`, with its series where there are several."""
    return f"{point.series} " * (series > 1) + f"{point.value:.3g}x" + " (unconfirmed)" * point.unconfirmed


# -- cells as text

EMPTY = "–"
# kind -> how a number of it is written, and what stands behind it
_NUMBERS = {
    "ms": ("{:.4g}", ""),
    "seconds": ("{:.1f}", ""),
    "ratio": ("{:#.3g}", "x"),
    "quantity": ("{:.4g}", ""),
    "percent": ("{:.3g}", " %"),
    "scientific": ("{:.1e}", ""),
    "integer": ("{:,.0f}", ""),
    "spread": ("{:.4g}", ""),
}
# A word of judgement and the sign before it: no meaning rests on colour alone.
_GOOD = ("correct", "REPRODUCED", "done", "complete", "FAST", "as expected", "not throttled", "usable", "reproduced",
         "holds", "undisturbed", "FASTER", "ok")  # fmt: skip
_BAD = ("incorrect", "rejected", "error", "timeout", "timed out", "missing", "DIFFERS", "failed", "SLOW", "wrong",
        "hard", "throttled", "refused", "differs", "does not hold", "disturbed", "SLOWER", "FAILED")  # fmt: skip
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "open": "○"}


def tone(word: object) -> Tone:
    """What a verdict says of what was judged."""
    if str(word).startswith(_GOOD):
        return "good"
    return "bad" if str(word).startswith(_BAD) else "open"


def numeric(kind: str) -> bool:
    """Whether a column of this kind holds numbers."""
    return kind in _NUMBERS


def _number(kind: str, value: str | float) -> str:
    form, unit = _NUMBERS[kind]
    number = float(value)
    if number == 0:
        return "0" + unit
    return form.format(100 * number if kind == "percent" else number).removesuffix(".") + unit


def point(kind: str, cell: Quantity) -> str:
    """The value of a quantity that has an interval."""
    return _number(kind, cell.value)


def interval(kind: str, cell: Quantity) -> str:
    """The 95 % interval of a quantity."""
    inner = kind if kind in ("percent", "ratio") else "quantity"
    low, high = (_number(inner, edge).removesuffix("x").removesuffix(" %") for edge in cell.ci95)
    return f"[{low}, {high}]"


def written(kind: str, cell: Cell) -> str:
    """A cell as readers see it."""
    if cell is None or cell == "":
        return EMPTY
    match cell:
        case Quantity() if kind in _NUMBERS:
            return f"{point(kind, cell)} {interval(kind, cell)}" + " ?" * cell.unconfirmed
        case Spread() if kind in _NUMBERS:
            middle, low, high = (_number(kind, end) for end in (cell.median, cell.min, cell.max))
            return middle if low == high else f"{middle} ({low} to {high})"
        case str() | int() | float() if kind in _NUMBERS:
            return _number(kind, cell)
    return f"{SIGNS[tone(cell)]}\u00a0{cell}" if kind == "verdict" else str(cell)


def key(kind: str, cell: Cell) -> str:
    """What a cell sorts by: a number's digits, else the empty string, which means its text."""
    if kind not in _NUMBERS or cell is None or cell == "":
        return ""
    number = cell.median if isinstance(cell, Spread) else cell.value if isinstance(cell, Quantity) else cell
    return repr(float(number))


def values(cell: Cell) -> dict[str, str | float | None]:
    """A cell as values by the name of their part; "" names the value itself."""
    if isinstance(cell, Spread):
        return {"median": cell.median, "min": cell.min, "max": cell.max}
    if isinstance(cell, Quantity):
        return {"": cell.value, "low": cell.ci95[0], "high": cell.ci95[1]}
    return {"": cell}
