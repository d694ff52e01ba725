"""Times in a README's tables. It is another study's prose: what is not understood is left out, never guessed.

Three kinds of table are read: rounds as rows, rounds as columns, and one row an artifact with its final times. Which
artifact a table is of stands in its cells or in the heading above it, by leading integer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ROUND = re.compile(r"^(?:r|round)?\s*#?(\d{1,3})$", re.IGNORECASE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass
class Published:
    """A README's times of one artifact, ms. rounds: round -> running best (or the round's own time)."""

    rounds: dict[int, float] = field(default_factory=dict)
    input_ms: float | None = None
    optimized_ms: float | None = None


@dataclass(frozen=True)
class Table:
    """A markdown table and the heading above it."""

    heading: str
    head: list[str]
    rows: list[list[str]]


def read(text: str, numbers: set[int]) -> dict[int, Published]:
    """Return a README's times of the artifacts with these numbers."""
    found = {n: Published() for n in numbers}
    for table in _tables(text):
        above = _named(table.heading, numbers)
        down = any(ROUND.match(row[0]) for row in table.rows)
        if down and re.search(r"round|iteration", table.head[0], re.IGNORECASE):
            _rounds_down(table, above, numbers, found)
        elif not down and sum(bool(ROUND.match(cell)) for cell in table.head[1:]) >= 2:
            _rounds_across(table, above, numbers, found)
        else:
            _final(table, numbers, found)
    return found


def _tables(text: str) -> Iterator[Table]:
    heading, lines = "", [*text.splitlines(), ""]
    start = 0
    for at, line in enumerate(lines):
        if line.lstrip().startswith("|"):
            continue
        block = [_cells(each) for each in lines[start:at]]
        if len(block) > 2 and all(re.fullmatch(r"[:\- ]*", cell) for cell in block[1]):
            yield Table(heading, block[0], block[2:])
        start = at + 1
        if line.startswith("#"):
            heading = line.lstrip("# ")


def _cells(line: str) -> list[str]:
    return [re.sub(r"[*`]", "", cell).strip() for cell in line.strip().strip("|").split("|")]


def _named(text: str, numbers: set[int]) -> int | None:
    """Return the artifact that a heading or a cell names: `4_Matrix...`, `[36_RMSNorm](...)`, `L1_36`, `36.

    RMSNorm`.
    """
    for match in re.finditer(r"(?<![\d.])(?:L1_)?0*(\d{1,3})(?=[_. :)\]-]*[A-Za-z]|\]|$)", text):
        if int(match.group(1)) in numbers and not re.search(r"round\s*$", text[: match.start()], re.IGNORECASE):
            return int(match.group(1))
    return None


def _ms(cell: str) -> float | None:
    match = NUMBER.search(cell)
    return float(match.group()) if match else None


def _column(head: list[str]) -> int | None:
    """Return the column of a table of one artifact with its running best, or else with its times."""
    for words in (r"best", r"time|runtime|latency|\bms\b"):
        for at, cell in enumerate(head[1:], 1):
            if re.search(words, cell, re.IGNORECASE):
                return at
    return None


def _rounds_down(table: Table, above: int | None, numbers: set[int], found: dict[int, Published]) -> None:
    columns = {at: n for at, cell in enumerate(table.head) if at and (n := _named(cell, numbers)) is not None}
    if not columns and above is not None and (at := _column(table.head)) is not None:
        columns = {at: above}
    for row in table.rows:
        match = ROUND.match(row[0])
        for at, n in columns.items() if match else ():
            value = _ms(row[at]) if at < len(row) else None
            if match and value is not None:
                found[n].rounds.setdefault(int(match.group(1)), value)


def _rounds_across(table: Table, above: int | None, numbers: set[int], found: dict[int, Published]) -> None:
    columns = {at: int(m.group(1)) for at, cell in enumerate(table.head) if at and (m := ROUND.match(cell))}
    best = [row for row in table.rows if re.search(r"best", row[0], re.IGNORECASE)]
    for row in best or table.rows:
        n = _named(row[0], numbers)
        n = above if n is None else n
        for at, number in columns.items() if n is not None else ():
            value = _ms(row[at]) if at < len(row) else None
            if n is not None and value is not None:
                found[n].rounds.setdefault(number, value)


def _final(table: Table, numbers: set[int], found: dict[int, Published]) -> None:
    """Read rows that name an artifact first, and their input and optimised columns without ratios or percentages."""
    for row in table.rows:
        n = _named(row[0], numbers)
        for at, head in enumerate(table.head) if n is not None else ():
            value = _ms(row[at]) if 0 < at < len(row) else None
            if n is None or value is None or re.search(r"%|[x×]\s*$|GB/s", row[at], re.IGNORECASE):
                continue
            if re.search(r"speed|vs|%", head, re.IGNORECASE):
                continue
            if re.search(r"\binput\b|original", head, re.IGNORECASE) and found[n].input_ms is None:
                found[n].input_ms = value
            if re.search(r"optimi[sz]ed|\bopt\b", head, re.IGNORECASE) and found[n].optimized_ms is None:
                found[n].optimized_ms = value
