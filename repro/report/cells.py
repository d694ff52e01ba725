"""A cell of a table as text and as what it sorts by. One place, so that every renderer says the same.

The column's kind says how a number, a `Quantity` or a `Spread` is written. None is `–`.
"""

from __future__ import annotations

from repro.report.elements import Cell, Column, Quantity, Spread, Table

EMPTY = "–"
# kind -> how a number of it is written, and what stands behind it
NUMBERS = {
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
GOOD = ("correct", "REPRODUCED", "done", "complete", "FAST", "as expected", "not throttled", "usable", "reproduced",
        "holds")  # fmt: skip
BAD = ("incorrect", "rejected", "error", "timeout", "timed out", "missing", "DIFFERS", "failed", "SLOW", "wrong",
       "hard", "throttled", "refused", "differs", "does not hold")  # fmt: skip
# A speedup with its interval, drawn against 1. Its number stands in a column of its own: text leaves the bar out.
BAR = "bar"
SIGNS = {"good": "✓", "bad": "✗", "open": "○"}


def tone(word: object) -> str:
    """`good`, `bad` or `open`: what a verdict says of what was judged."""
    if str(word).startswith(GOOD):
        return "good"
    return "bad" if str(word).startswith(BAD) else "open"


def written(table: Table) -> tuple[list[Column], list[list[Cell]]]:
    """Columns and rows of a table without its bars: what a renderer of text prints."""
    kept = [at for at, head in enumerate(table.columns) if head.kind != BAR]
    return [table.columns[at] for at in kept], [[row[at] for at in kept] for row in table.rows]


def numeric(kind: str) -> bool:
    """Whether a column of this kind holds numbers."""
    return kind in NUMBERS


def _written(kind: str, value: str | float) -> str:
    form, unit = NUMBERS[kind]
    number = float(value)
    if number == 0:
        return "0" + unit
    return form.format(100 * number if kind == "percent" else number).removesuffix(".") + unit


def point(kind: str, cell: Quantity) -> str:
    """The value of a quantity that has an interval."""
    return _written(kind, cell.value)


def interval(kind: str, cell: Quantity) -> str:
    """The 95 % interval of a quantity."""
    inner = kind if kind in ("percent", "ratio") else "quantity"
    low, high = (_written(inner, edge).removesuffix("x").removesuffix(" %") for edge in cell.ci95)
    return f"[{low}, {high}]"


def text(kind: str, cell: Cell) -> str:
    """A cell as readers see it."""
    if cell is None or cell == "":
        return EMPTY
    if kind in NUMBERS:
        if isinstance(cell, Quantity):
            return f"{point(kind, cell)} {interval(kind, cell)}" + " ?" * cell.unconfirmed
        if isinstance(cell, Spread):
            middle, low, high = (_written(kind, end) for end in (cell.median, cell.min, cell.max))
            return middle if low == high else f"{middle} ({low} to {high})"
        return _written(kind, cell)
    if kind == "verdict":
        return f"{SIGNS[tone(cell)]}\u00a0{cell}"
    return str(cell)


def key(kind: str, cell: Cell) -> str:
    """What a cell sorts by: a number's digits, else the empty string, which means its text."""
    if (kind not in NUMBERS and kind != BAR) or cell is None or cell == "":
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
