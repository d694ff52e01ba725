"""The figure of a search as SVG: the tree of its candidates, each a point that says what it is under the pointer."""

from __future__ import annotations

import html
import math

from repro.report.elements import Figure, Tree
from repro.report.palette import COLOURS, GRID, INK, PAPER, VARIABLES

WIDTH, HEIGHT = 520, 330
LEFT, RIGHT, TOP, BOTTOM = 62, 508, 34, 286
# The radius of a candidate that was only screened.
SMALL = 2.2
# Ticks of a decade. Fewer than two in the range: its ends are the ticks.
SUBS = (1.0, 2.0, 5.0)


def svg(figure: Figure, data: Tree) -> str:
    """Draw a figure of kind `search`: round to the right, time upwards on a logarithmic axis.

    A point without a text (`told`) is a dot of a screened candidate.
    """
    points = data.points
    rounds = max(p.round for p in points)
    times = [p.time_ms for p in points]
    low, high = min(times) / 1.1, max(times) * 1.1

    def x(at: float) -> float:
        return float(round(LEFT + (RIGHT - LEFT) * (at + 0.4) / (rounds + 0.9), 1))

    def y(time_ms: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * math.log(time_ms / low) / math.log(high / low), 1)

    places: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        some = [p for p in points if p.round == number]
        for at, p in enumerate(some):
            places[p.id] = x(number + 0.6 * ((at + 0.5) / len(some) - 0.5)), y(p.time_ms)
    axis = "ms" + (", not a measurement" if data.stamp else "")
    drawn = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" style="fill: {_colour(PAPER)}"/>',
        _text(WIDTH / 2, 20, figure.title),
        _text((LEFT + RIGHT) / 2, HEIGHT - 10, "round"),
        _text(16, HEIGHT / 2, axis, f' transform="rotate(-90 16 {HEIGHT / 2:g})"'),
        _line(f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}", INK),
        *(_text(x(number), BOTTOM + 18, str(number)) for number in range(rounds + 1)),
    ]
    for tick in _ticks(low, high):
        drawn += [
            _line(f"M{LEFT} {y(tick)}H{RIGHT}", GRID),
            _text(LEFT - 6, y(tick) + 4, f"{tick:.5g}", ' style="text-anchor: end"'),
        ]
    links = [f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" for p in points if p.parent in places
             for (x0, y0), (x1, y1) in [(places[p.parent], places[p.id])]]  # fmt: skip
    drawn.append(_line("".join(links), COLOURS[0], " stroke-opacity: 0.3;"))
    steps = [f"{y(best)}H{x(number + 0.5)}" for number, best in data.best.items()]
    drawn.append(_line(f"M{x(min(data.best) - 0.4)} {'V'.join(steps)}", COLOURS[2]))
    silent = [places[p.id] for p in points if not p.told]
    if silent:
        dots = "".join(f"M{at_x:.0f} {at_y:.0f}h0" for at_x, at_y in silent)
        drawn.append(_line(dots, COLOURS[1], f" stroke-width: {2 * SMALL}; stroke-linecap: round;"))
    for p in (p for p in points if p.told):
        at_x, at_y = places[p.id]
        colour = COLOURS[2] if p.best else COLOURS[0] if p.accepted else COLOURS[1]
        size = 5 if p.accepted else 3.5 if p.full else SMALL
        drawn.append(f'<circle cx="{at_x}" cy="{at_y}" r="{size}" style="fill: {_colour(colour)}">'
                     f"<title>{html.escape(p.told)}</title></circle>")  # fmt: skip
    alt = html.escape(f"{figure.title}. {figure.alt}", quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}"'
    style = f'style="fill: {_colour(INK)}; text-anchor: middle"'
    return "\n".join([f'{head} font-family="system-ui, sans-serif" font-size="12" {style}>', *drawn, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    found = [10.0**decade * sub for decade in decades for sub in SUBS]
    found = [tick for tick in found if low <= tick <= high]
    return found if len(found) > 1 else [low, high]


def _colour(colour: str) -> str:
    """Return a colour as a CSS variable, which a page may set for a dark screen."""
    return f"var(--{VARIABLES[colour]}, {colour})"


def _line(path: str, colour: str, more: str = "") -> str:
    return f'<path d="{path}" style="fill: none; stroke: {_colour(colour)};{more}"/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{html.escape(text)}</text>'
