"""Figures of a document as SVG: one function a kind of `elements.Figure`. The same data gives the same bytes.

Matplotlib is imported only when a figure is drawn. Every colour is a CSS variable with what was drawn as its fallback:
a page may set it for a dark screen.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from repro.artifacts.trace import Facts
from repro.errors import PrerequisiteError
from repro.report import elements
from repro.report.elements import Candidate, Convergence, Forest, Point, Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Okabe and Ito's colours, which every common colour vision distinguishes; markers and hatches differ too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, PAPER, GRID, BAND = "#000000", "#ffffff", "#dddddd", "#c8d4e3"
# Each colour is a CSS variable of the page with itself as its fallback.
VARIABLES = {INK: "ink", PAPER: "paper", GRID: "grid", BAND: "band", "#777777": "grey"} | {
    colour: f"series-{at}" for at, colour in enumerate(COLOURS)
}
MARKERS = ("o", "s", "D", "^", "v", "P")
# As wide as a phone shows at full size: on a larger screen text grows with the figure.
WIDTH_IN, ROW_IN, FRAME_IN, LEGEND_IN = 5.2, 0.36, 1.2, 0.15
LABEL, TITLE, LEGEND = 24, 46, 72
# An axis whose ends are further apart than this factor has these ticks a decade.
TICKS = (
    (300, (1.0, 3.0)),
    (8, (1.0, 2.0, 5.0)),
    (2.5, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (0, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)),
)


def _plotting() -> Any:
    """Return matplotlib with all that a figure needs. Raises PrerequisiteError if it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_svg
        import matplotlib.figure
    except ImportError as error:
        remedy = "Run `make setup` or `pip install .` in a checkout."
        raise PrerequisiteError("a figure needs matplotlib", str(error), remedy) from error
    return matplotlib


def every(figures: list[elements.Figure]) -> dict[str, str]:
    """Return figure id -> its SVG. Raises PrerequisiteError without matplotlib."""
    return {figure.id: svg(figure) for figure in figures}


def svg(figure: elements.Figure) -> str:
    """A figure as SVG text that stands in a page: its title and alt text for screen readers, ids of its own.

    Raises PrerequisiteError without matplotlib.
    """
    match figure.data:
        case Convergence() as trace:
            text = _drawn(figure, lambda axes: _convergence(axes, trace.facts), 3.0)
        case Forest() as forest:
            legend = sum(len(textwrap.wrap(name, LEGEND)) for name in forest.series.values())
            rows = len(forest.rows) * (1.7 if len(forest.series) > 1 else 1)
            text = _drawn(figure, lambda axes: _forest(axes, forest), FRAME_IN + ROW_IN * rows + LEGEND_IN * legend)
        case Tree() as tree:
            return _spoken(_embedded(_drawn(figure, lambda axes: _tree(axes, tree), 3.6), figure), tree.points)
    return _embedded(text, figure)


def _drawn(figure: elements.Figure, draw: Callable[[Axes], None], height_in: float) -> str:
    """A figure of one axes, with its title over the figure: over narrow axes its end is cut off."""
    matplotlib = _plotting()
    with matplotlib.rc_context(
        {"svg.hashsalt": figure.id, "svg.fonttype": "none", "font.size": 10, "hatch.linewidth": 0.5}
    ):
        drawn = matplotlib.figure.Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(drawn)
        axes = drawn.add_subplot()
        draw(axes)
        drawn.suptitle(textwrap.fill(figure.title, TITLE), fontsize=11)
        axes.set_axisbelow(True)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Title": figure.title, "Date": None, "Creator": "repro"})
    return out.getvalue()


def _embedded(text: str, figure: elements.Figure) -> str:
    """Without prologue, fixed size and metadata; ids of this figure alone; colours as variables."""
    body = text[text.index("<svg ") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    # its style would reach the whole page
    body = re.sub(r"<defs>\s*<style .*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)
    # two thirds of its size
    body = re.sub(r' (?:d|x|y)="[^"]+"', lambda found: re.sub(r"(\.\d\d)\d+|\s*\n", r"\1", found[0]), body)
    body = re.sub(r"font-family: '[^;]*, (?=sans-serif)", "font-family: ", re.sub(r"\n +", "\n", body))
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    head, _, rest = body.partition(">")
    head = re.sub(r'\s(width|height|role|aria-label|aria-labelledby)="[^"]*"', "", head)
    used = set(re.findall(r"#([^)\"]+)[)\"]", rest)) | set(re.findall(r'"(says-\d+)"', rest))
    rest, before = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", rest), ""
    while before != rest:  # groups without a name
        before, rest = rest, re.sub(r"<g>\n((?:(?!</?g\b).)*)</g>\n", r"\1", rest, flags=re.DOTALL)
    rest = re.sub(r'<rect ([^>]*?)fill="(#[0-9a-f]{6})"', r'<rect \1style="fill: \2"', rest)  # of a hatched pattern
    for colour, variable in VARIABLES.items():
        rest = re.sub(rf"(?<=[: ]){colour}\b", f"var(--{variable}, {colour})", rest, flags=re.IGNORECASE)
    rest = re.sub(r"<title>.*?</title>", "", rest, count=1, flags=re.DOTALL)
    alt = html.escape(f"{figure.title}. {figure.alt}", quote=True)
    return f'{head} role="img" aria-label="{alt}">{rest}'.rstrip()


def _label(name: str) -> str:
    """A name in lines that leave room for the axes; an underscore may end a line."""
    pieces = textwrap.wrap(name.replace("_", "_\u200b ").replace("/", "/\u200b "), LABEL + name.count("_"))
    return "\n".join(piece.replace("\u200b ", "").removesuffix("\u200b") for piece in pieces)


def _ratio_axis(axes: Axes, label: str) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis, axes.get_xlim(), "{x:g}x")
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.grid(axis="x", color=GRID, linewidth=0.6)


def _plain_ticks(axis: Axis, ends: tuple[float, float], form: str) -> None:
    """Ticks of a logarithmic axis as plain numbers, as many as its range needs."""
    from matplotlib.ticker import LogLocator

    low, high = ends
    axis.set_major_locator(LogLocator(subs=next(subs for least, subs in TICKS if high / low > least)))
    axis.set_major_formatter(form)


def _rows(axes: Axes, labels: list[str]) -> None:
    """Row labels from top to bottom."""
    axes.set_yticks(range(len(labels)), [_label(label) for label in labels], fontsize=9)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _legend(axes: Axes, columns: int) -> None:
    """Below the axes, where it hides nothing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.legend(frameon=False, fontsize=8, ncols=columns, loc="outside lower center")


def _forest(axes: Axes, data: Forest) -> None:
    """Points with intervals on a logarithmic axis, the band of each row behind them; without bands their numbers."""
    names, banded = list(data.series), any(row.band for row in data.rows)
    for at, row in enumerate(data.rows):
        if row.band:
            low, high = row.band
            axes.barh(at, high - low, left=low, height=0.7, color=BAND, label="tolerance" if not at else None)
    for number, name in enumerate(names):
        shift = 0.6 * (number / (len(names) - 1) - 0.5) if len(names) > 1 else 0.0
        points = [(at + shift, p) for at, row in enumerate(data.rows) for p in row.points if p.series == name]
        _series(axes, number, data.series[name], points, numbered=not banded)
    axes.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.12)
    _rows(axes, [row.label for row in data.rows])
    _ratio_axis(axes, data.x)
    if len(names) > 1 or banded:
        _legend(axes, 1)


def _series(axes: Axes, number: int, name: str, points: list[tuple[float, Point]], *, numbered: bool) -> None:
    """Points of one series with intervals; hollow, and `?`, where the judge's clock cannot confirm them."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    for hollow in (False, True):
        mine = [(y, p) for y, p in points if p.unconfirmed == hollow]
        errors = [[p.value - p.ci95[0] for _, p in mine], [p.ci95[1] - p.value for _, p in mine]]
        axes.errorbar([p.value for _, p in mine], [y for y, _ in mine], xerr=errors, fmt=marker, color=colour,
                      markersize=5, capsize=3, markerfacecolor=PAPER if hollow else colour, linewidth=1.4,
                      label="" if hollow else textwrap.fill(name, LEGEND))  # fmt: skip
    for y, point in points if numbered else ():
        text = elements.written("ratio", point.value) + " ?" * point.unconfirmed
        axes.annotate(text, (point.ci95[1], y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8,
                      bbox={"color": PAPER, "pad": 0})  # fmt: skip


# -- the convergence of a trace


def _convergence(axes: Axes, facts: Facts) -> None:
    """Times of the rounds and the running best."""
    own = {r.round: r.time_ms for r in facts.rounds if r.time_ms is not None}
    best = {r.round: r.running_best_ms for r in facts.rounds if r.running_best_ms is not None}
    axes.step(list(own), list(own.values()), where="mid", color="#777777", linewidth=1, marker="o", markersize=4,
              label="time of the round")  # fmt: skip
    axes.step(list(best), list(best.values()), where="mid", color=COLOURS[0], linewidth=2.2,
              label="running best, recomputed")  # fmt: skip
    axes.set_xlabel("round")
    axes.set_ylabel("kernel time (ms)")
    axes.set_xticks(list(own))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)


# -- the tree of a search


def _tree(axes: Axes, tree: Tree) -> None:
    """Round to the right, time upwards on a logarithmic axis; the step line is the best so far.

    Points of one round stand side by side. A point without a text is a dot of a screened candidate.
    """
    rounds = range(max(point.round for point in tree.points) + 1)
    places = {
        point.id: (number + 0.6 * ((at + 0.5) / len(mine) - 0.5), point.time_ms)
        for number in rounds
        for mine in [[point for point in tree.points if point.round == number]]
        for at, point in enumerate(mine)
    }
    pairs = [(places[point.parent], places[point.id]) for point in tree.points if point.parent in places]
    links = [[value for (one, other) in pairs for value in (one[axis], other[axis], math.nan)] for axis in (0, 1)]
    axes.plot(*links, color=COLOURS[0], alpha=0.3, linewidth=1)
    best = list(tree.best.values())
    axes.step([at - 0.4 for at in (*tree.best, max(tree.best) + 1)], [*best, best[-1]], where="post",
              color=COLOURS[2], linewidth=1.2)  # fmt: skip
    _candidates(axes, tree.points, places)
    axes.set_yscale("log")
    _plain_ticks(axes.yaxis, axes.get_ylim(), "{x:.5g}")
    axes.minorticks_off()
    axes.set_xticks(list(rounds))
    axes.set_xlabel("round")
    axes.set_ylabel("ms" + (", not a measurement" if tree.stamp else ""))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _candidates(axes: Axes, points: list[Candidate], places: dict[str, tuple[float, float]]) -> None:
    """Dots of screened candidates, and above them the points that say something."""
    silent = [places[point.id] for point in points if not point.text]
    axes.plot([x for x, _ in silent], [y for _, y in silent], ".", color=COLOURS[1], markersize=4)
    for at, point in enumerate(points):
        if point.text:
            colour = COLOURS[2] if point.best else COLOURS[0] if point.accepted else COLOURS[1]
            size = 8 if point.accepted else 6 if point.full else 4
            axes.plot(*places[point.id], "o", color=colour, markersize=size, gid=f"says-{at}")


def _spoken(text: str, points: list[Candidate]) -> str:
    """The tree with what each point says under the pointer."""
    return re.sub(
        r'<g id="[^"]*says-(\d+)">', lambda at: f"<g><title>{html.escape(points[int(at[1])].text)}</title>", text
    )
