"""What a verb prints on stdout: tables that fit the terminal, and one last line with the verdict.

`-q` prints the last line alone, `-v` everything. Markdown goes to files only. Colour appears on a terminal and nowhere
else; NO_COLOR turns it off. Solutions, paths and errors reach the terminal without control characters.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from repro.errors import printable

EMPTY = "–"
SEPARATOR = " · "
GOOD, BAD, OPEN = "green", "red", "yellow"
GAP = 2  # between two columns
# A longer table is cut to the fewer rows, those that are not as they should be first, unless the screen is verbose.
MANY, FEW = 40, 12


@dataclass(frozen=True)
class Column:
    """A column. priority: 0 is always shown; of the others the highest goes first where the width does not suffice.
    number: right-aligned and never wrapped. whole: a text that is never wrapped, as a name or a verdict. least: how
    narrow another text may become before a column goes."""

    title: str
    priority: int = 0
    number: bool = False
    whole: bool = False
    least: int = 16


class Screen:
    """Draws on stdout. Nothing but the last line where it is quiet."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False, console: Console | None = None) -> None:
        self.quiet, self.verbose = quiet, verbose and not quiet
        self.console = console or Console(highlight=False, markup=False, emoji=False)

    @staticmethod
    def of(args: argparse.Namespace) -> Screen:
        """The screen that a command line asks for."""
        return Screen(quiet=getattr(args, "quiet", False), verbose=getattr(args, "verbose", False))

    def title(self, text: str) -> None:
        """A heading."""
        if not self.quiet:
            self.console.print(Text(printable(text), "bold"))

    def line(self, text: str | Text = "", style: str = "") -> None:
        """A sentence, wrapped between words."""
        if not self.quiet:
            shown = text if isinstance(text, Text) else Text(printable(text), style)
            self.console.print(shown, soft_wrap=not self.console.is_terminal)

    def item(self, text: str, mark: str | Text = "-") -> None:
        """A sentence of a list. On a terminal its further lines are indented; elsewhere it stays one line."""
        if not self.console.is_terminal:
            self.line(Text.assemble(mark, " ", printable(text)))
        elif not self.quiet:
            grid = Table.grid(padding=(0, 1, 0, 0))
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
            grid.add_row(mark, Text(printable(text)))
            self.console.print(grid)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """A table of the columns that fit and hold anything. A cell is a string, a Text, or None."""
        lines = [[_cell(value) for value in row] for row in rows]
        if self.quiet or not lines:
            return
        columns, lines = _filled(columns, lines)
        kept = fitting(columns, lines, self.console.width)
        if caption:
            self.title(caption)
        self.console.print(_drawn(columns, lines, kept))
        if left_out := [column.title for at, column in enumerate(columns) if at not in kept]:
            self.line(f"Wider terminals also show {', '.join(left_out)}.", "dim")
        self.console.print()

    def last(self, *parts: str, report: Path | str | None = None) -> None:
        """The one line that always comes: the verdict, and where the report is. On a terminal that is too narrow each
        part is a line; elsewhere it is one line."""
        known = [printable(part) for part in (*parts, f"report: {shortest(report)}" if report else "") if part]
        narrow = self.console.is_terminal and len(SEPARATOR.join(known)) > self.console.width
        for line in known if narrow else [SEPARATOR.join(known)]:
            self.console.print(Text(line, "bold"), soft_wrap=not narrow or " " not in line)


def shortest(path: Path | str) -> str:
    """A path from the working folder where it lies in it, else as it is."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError, RuntimeError):  # the last: links in a circle
        return str(path)


def _least(columns: Sequence[Column], rows: Sequence[Sequence[Text]], at: int) -> int:
    """How narrow a column may become: numbers and names stay whole."""
    column = columns[at]
    widest = max([len(column.title), *(row[at].cell_len for row in rows)])
    return widest if column.number or column.whole else min(widest, max(column.least, len(column.title)))


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Which columns a table of this width holds: numbers and names whole, texts at least as wide as said."""
    kept = [at for at, _ in enumerate(columns)]
    least = [_least(columns, rows, at) for at in kept]
    while sum(least[at] for at in kept) + GAP * (len(kept) - 1) > width:
        optional = [at for at in kept if columns[at].priority]
        if not optional:
            break
        kept.remove(max(optional, key=lambda at: (columns[at].priority, at)))
    return kept


def _filled(columns: Sequence[Column], rows: list[list[Text]]) -> tuple[list[Column], list[list[Text]]]:
    """The columns, and the rows, without columns that hold nothing. The first column stays."""
    filled = [at for at in range(len(columns)) if at == 0 or any(row[at].plain != EMPTY for row in rows)]
    return [columns[at] for at in filled], [[row[at] for at in filled] for row in rows]


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[Text]], kept: list[int]) -> Table:
    """The table of the columns that are kept."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for at in kept:
        column = columns[at]
        fixed = column.number or column.whole
        table.add_column(column.title, justify="right" if column.number else "left", no_wrap=fixed,
                         overflow="fold" if at == 0 or not fixed else "ellipsis")  # fmt: skip
    for row in rows:
        table.add_row(*(row[at] for at in kept))
    return table


def _cell(value: Any) -> Text:
    if value is None or value == "":
        return Text(EMPTY, "dim")
    return value if isinstance(value, Text) else Text(printable(str(value)))
