"""Figures of a document as SVG: one function a kind of `elements.Figure`. The same data gives the same bytes.

`templates/figure.svg.j2` draws them. Every colour is a CSS variable with the colour on paper as its fallback: a page
may set it for a dark screen.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable
from typing import Any

from repro.report import elements, template
from repro.report.elements import Forest, Tree

# Okabe and Ito's colours, which every common colour vision distinguishes; a point also says its series.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
# As wide as a phone shows at full size: on a larger screen text grows with the figure.
_WIDTH, _POINT, _LINE = 374, 12, 11
_LABEL, _TITLE, _LEGEND = 24, 60, 84  # characters of a line
# An axis whose ends are further apart than this factor has these ticks a decade.
_TICKS = (
    (300, (1.0, 3.0)),
    (8, (1.0, 2.0, 5.0)),
    (2.5, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (0, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)),
)


def every(figures: list[elements.Figure]) -> dict[str, str]:
    """Return figure id -> its SVG. Raises PrerequisiteError without jinja2."""
    return {figure.id: svg(figure) for figure in figures}


def svg(figure: elements.Figure) -> str:
    """A figure as SVG text that stands in a page or in a file. Raises PrerequisiteError without jinja2."""
    title = textwrap.wrap(figure.title, _TITLE)
    top = 14 * len(title) + 12
    values = _forest(figure.data, top) if isinstance(figure.data, Forest) else _tree(figure.data, top)
    shown = {"forest": None, "figure": figure, "title": title, "top": top, "width": _WIDTH, "colour": _colour} | values
    return template.render("figure.svg.j2", shown, autoescape=True).rstrip()


def _colour(series: int) -> str:
    series %= len(_COLOURS)
    return f"var(--series-{series}, {_COLOURS[series]})"


def _forest(forest: Forest, top: int) -> dict[str, Any]:
    """Points with intervals on a logarithmic axis to the right, and their numbers."""
    points = [point for row in forest.rows for point in row.points]
    low, high = min(1.0, *(p.ci95[0] for p in points)) / 1.05, max(1.0, *(p.ci95[1] for p in points)) * 1.05
    row_height = _POINT * max(2, *(len(row.points) for row in forest.rows)) + 6
    bottom, left, right = top + row_height * len(forest.rows), 132, 316
    legend = [(line, None if at else series) for series, name in enumerate(forest.series.values())
              for at, line in enumerate(textwrap.wrap(name, _LEGEND))] * (len(forest.series) > 1)  # fmt: skip
    return {
        "forest": forest, "names": list(forest.series), "label": _label, "legend": legend, "row_height": row_height,
        "at": _scale(low, high, left, right), "ticks": _ticks(low, high), "left": left, "right": right,
        "bottom": bottom, "height": bottom + 24 + _LINE * len(legend),
    }  # fmt: skip


def _tree(tree: Tree, top: int) -> dict[str, Any]:
    """Round to the right, time upwards on a logarithmic axis; the step line is the best so far.

    Points of one round stand side by side. A point without a text is a dot of a screened candidate.
    """
    times = [point.time_ms for point in tree.points]
    low, high = min(times) / 1.1, max(times) * 1.1
    rounds = range(max(point.round for point in tree.points) + 1)
    bottom, left, right = top + 200, 44, 366
    at = _scale(low, high, bottom, top)

    def across(number: float) -> float:
        return round(left + (right - left) * (number + 0.5) / len(rounds), 1)

    places = {
        point.id: (across(number + 0.6 * ((place + 0.5) / len(mine) - 0.5)), at(point.time_ms))
        for number in rounds
        for mine in [[point for point in tree.points if point.round == number]]
        for place, point in enumerate(mine)
    }
    return {"tree": tree, "rounds": rounds, "places": places, "across": across, "at": at, "ticks": _ticks(low, high),
            "left": left, "right": right, "bottom": bottom, "height": bottom + 32}  # fmt: skip


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return where a value of a logarithmic axis lies, whose ends are at start and end."""
    return lambda value: round(start + (end - start) * math.log(value / low) / math.log(high / low), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Return plain numbers on a logarithmic axis, as many as its range needs."""
    steps = next(steps for least, steps in _TICKS if high / low > least)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]


def _label(name: str) -> list[str]:
    """A name in lines that leave room for the axes; an underscore or a slash may end a line."""
    pieces = textwrap.wrap(re.sub("([_/])", "\\1\u200b ", name), _LABEL + name.count("_"))
    return [piece.replace("\u200b ", "").removesuffix("\u200b") for piece in pieces]
