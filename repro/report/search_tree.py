"""The figure of a search: the tree of its candidates, whose points say what they are."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from repro.report.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GID = "program-"


def draw(axes: Axes, data: dict[str, Any]) -> None:
    """Draw the tree: round to the right, time upwards on a logarithmic axis."""
    every = {p["id"]: p for p in data["points"]}
    places: dict[str, tuple[float, float]] = {}
    rounds: dict[int, int] = {}
    for p in data["points"]:
        at = rounds[p["round"]] = rounds.get(p["round"], -1) + 1
        count = sum(q["round"] == p["round"] for q in data["points"])
        places[p["id"]] = (p["round"] + (0.6 * at / count - 0.3 if p["round"] else 0.0), p["time_ms"])
    for p in data["points"]:
        if p["parent"] in places:
            (x0, y0), (x1, y1) = places[p["parent"]], places[p["id"]]
            axes.plot([x0, x1], [y0, y1], color=COLOURS[0], alpha=0.25, linewidth=0.8)
    for p in data["points"]:
        x, y = places[p["id"]]
        colour = COLOURS[2] if p["best"] else COLOURS[0] if p["accepted"] else COLOURS[1]
        (point,) = axes.plot([x], [y], "o" if p["full"] else ".", color=colour, markersize=7 if p["accepted"] else 5)
        point.set_gid(GID + p["id"])
    best, xs, ys = None, [], []
    for number in range(max(rounds, default=0) + 1):
        some = [p["time_ms"] for p in every.values() if p["round"] == number and p["accepted"]]
        best = min([*some, *([best] if best is not None else [])], default=None)
        if best is not None:
            xs.append(number + 0.4)
            ys.append(best)
    axes.step(xs, ys, where="post", color=COLOURS[2], linewidth=1.2)
    axes.set_yscale("log")
    axes.set_xlabel("round")
    axes.set_ylabel("ms" + (", not a measurement" if data["stamp"] else ""))
    axes.set_xticks(range(max(rounds, default=0) + 1))


def titled(svg: str, data: dict[str, Any]) -> str:
    """Return a figure whose points carry their text, which a browser shows under the pointer."""
    for p in data["points"]:
        mark = f'<g id="{GID}{p["id"]}">'
        svg = svg.replace(mark, f"{mark}<title>{html.escape(p['told'])}</title>")
    return svg
