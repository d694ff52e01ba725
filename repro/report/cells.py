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
    "ratio": ("{:.3g}", "x"),
    "quantity": ("{:.4g}", ""),
    "percent": ("{:.3g}", " %"),
    "scientific": ("{:.1e}", ""),
    "integer": ("{:,.0f}", ""),
    "spread": ("{:.4g}", ""),
}
# A word of judgement and the sign before it: no meaning rests on colour alone.
GOOD = ("correct", "REPRODUCED", "done", "complete", "FAST", "as it must be", "not throttled")
BAD = ("incorrect", "rejected", "error", "timeout", "DIFFERS", "failed", "SLOW", "wrong", "hard",
       "throttled")  # fmt: skip
SIGNS = {"good": "✓", "bad": "✗", "open": "○"}


def tone(word: Any) -> str:
    """`good`, `bad` or `open`: what a verdict says of what was judged."""
    first = str(word).split(":", 1)[0]
    return "good" if first in GOOD else "bad" if first in BAD else "open"


def numeric(kind: str) -> bool:
    """Whether a column of this kind holds numbers."""
    return kind in NUMBERS


def _written(kind: str, value: Any) -> str:
    form, unit = NUMBERS[kind]
    number = float(value)
    if number == 0:
        return "0" + unit
    return form.format(100 * number if kind == "percent" else number) + unit


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
        inner = kind if kind == "percent" else "quantity" if kind != "ratio" else kind
        low, high = (_written(inner, edge).removesuffix("x").removesuffix(" %") for edge in cell["ci95"])
        return f"{_written(kind, cell['value'])} [{low}, {high}]"
    if kind == "verdict":
        return f"{SIGNS[tone(cell)]}\u00a0{cell}"
    return str(cell)


def key(kind: str, cell: Any) -> str:
    """What a cell sorts by: a number's digits, else the empty string, which means its text."""
    if kind not in NUMBERS or cell is None or cell == "":
        return ""
    number = cell["median" if kind == "spread" else "value"] if isinstance(cell, dict) else cell
    return repr(float(number))
