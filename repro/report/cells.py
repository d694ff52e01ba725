"""A cell of a table as text and as what it sorts by. One place, so that every renderer says the same.

A quantity is a number, or {"value", "ci95"}; a spread is {"median", "min", "max"}. The column's kind says how it is
written. None is `–`.
"""

from __future__ import annotations

from typing import Any

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
BAD = ("incorrect", "rejected", "error", "timeout", "timed out", "DIFFERS", "failed", "SLOW", "wrong", "hard",
       "throttled", "refused", "differs", "does not hold")  # fmt: skip
# A speedup with its interval, drawn against 1. Its number stands in a column of its own: text leaves the bar out.
BAR = "bar"
SIGNS = {"good": "✓", "bad": "✗", "open": "○"}


def tone(word: Any) -> str:
    """`good`, `bad` or `open`: what a verdict says of what was judged."""
    if str(word).startswith(GOOD):
        return "good"
    return "bad" if str(word).startswith(BAD) else "open"


def written(table: dict[str, Any]) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Columns and rows of a table without its bars: what a renderer of text prints."""
    kept = [at for at, head in enumerate(table["columns"]) if head["kind"] != BAR]
    return [table["columns"][at] for at in kept], [[row[at] for at in kept] for row in table["rows"]]


def numeric(kind: str) -> bool:
    """Whether a column of this kind holds numbers."""
    return kind in NUMBERS


def _written(kind: str, value: Any) -> str:
    form, unit = NUMBERS[kind]
    number = float(value)
    if number == 0:
        return "0" + unit
    return form.format(100 * number if kind == "percent" else number).removesuffix(".") + unit


def point(kind: str, cell: dict[str, Any]) -> str:
    """The value of a quantity that has an interval."""
    return _written(kind, cell["value"])


def interval(kind: str, cell: dict[str, Any]) -> str:
    """The 95 % interval of a quantity."""
    inner = kind if kind in ("percent", "ratio") else "quantity"
    low, high = (_written(inner, edge).removesuffix("x").removesuffix(" %") for edge in cell["ci95"])
    return f"[{low}, {high}]"


def text(kind: str, cell: Any) -> str:
    """A cell as readers see it."""
    if cell is None or cell == "":
        return EMPTY
    if kind in NUMBERS:
        if not isinstance(cell, dict):
            return _written(kind, cell)
        if kind == "spread":
            middle, low, high = (_written(kind, cell[end]) for end in ("median", "min", "max"))
            return middle if low == high else f"{middle} ({low} to {high})"
        return f"{point(kind, cell)} {interval(kind, cell)}"
    if kind == "verdict":
        return f"{SIGNS[tone(cell)]}\u00a0{cell}"
    return str(cell)


def key(kind: str, cell: Any) -> str:
    """What a cell sorts by: a number's digits, else the empty string, which means its text."""
    if (kind not in NUMBERS and kind != BAR) or cell is None or cell == "":
        return ""
    number = cell["median" if kind == "spread" else "value"] if isinstance(cell, dict) else cell
    return repr(float(number))


def values(cell: Any) -> dict[str, Any]:
    """A cell as values by the name of their part; "" names the value itself."""
    if not isinstance(cell, dict):
        return {"": cell}
    if "median" in cell:
        return {name: cell[name] for name in ("median", "min", "max")}
    return {"": cell["value"], "low": cell["ci95"][0], "high": cell["ci95"][1]}
