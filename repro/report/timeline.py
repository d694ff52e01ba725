"""The figure of a run's clocks: panels that share one axis of seconds, rows one after another, reasons as lanes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from repro.report.elements import Bins, Panel, Timeline, TimelineRow
from repro.report.palette import BAND, COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = ("SM clock\nMHz", "memory\nclock MHz", "power\nW", "temperature\n°C")
PANEL_IN, LANE_IN, FRAME_IN = 1.05, 0.24, 1.5
SLOWED = COLOURS[1]


def _drawn(bins: Bins) -> list[tuple[str, Panel]]:
    """The panels of what was sampled: (title, values)."""
    found = zip(PANELS, (bins.sm_mhz, bins.memory_mhz, bins.power_w, bins.temperature_c), strict=True)
    return [(title, values) for title, values in found if values]


def height_in(data: Timeline) -> float:
    """How high the figure is."""
    return FRAME_IN + PANEL_IN * len(_drawn(data.bins)) + LANE_IN * len(data.reasons)


def draw(figure: Figure, data: Timeline, title: str) -> None:
    """All panels."""
    panels = _drawn(data.bins)
    lanes = list(data.reasons)
    ratios = [PANEL_IN] * len(panels) + [LANE_IN * len(lanes)] * bool(lanes)
    every = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios})[:, 0]
    for axes, (label, values) in zip(every, panels, strict=False):
        _panel(axes, data.bins, values, label)
    if lanes:
        _lanes(every[-1], data, lanes)
    for axes in every:
        _rows(axes, data)
    _numbers(every[0], data.rows)
    every[0].set_title(title, fontsize=11, pad=18)
    every[-1].set_xlim(0, data.rows[-1].end_s or 1)
    every[-1].set_xlabel("seconds of rows, one after another")
    figure.align_ylabels(every)


def _panel(axes: Axes, bins: Bins, sampled: Panel, label: str) -> None:
    """The median as a line in the band of its extremes; broken between rows and where nothing is known."""
    times: list[float] = []
    ends: dict[str, list[float]] = {"min": [], "median": [], "max": []}
    before = None
    for at, (t, row) in enumerate(zip(bins.t_s, bins.row, strict=True)):
        if before not in (None, row):
            times.append(t)
            for values in ends.values():
                values.append(math.nan)
        before = row
        times.append(t)
        for end, values in ends.items():
            value = sampled[end][at]
            values.append(math.nan if value is None else value)
    axes.fill_between(times, ends["min"], ends["max"], color=COLOURS[0], alpha=0.35, linewidth=0)
    axes.plot(times, ends["median"], color=COLOURS[0], linewidth=1.2)
    known = [value for values in ends.values() for value in values if not math.isnan(value)]
    low, high = min(known, default=0), max(known, default=1)
    room = max(0.08 * (high - low), 0.02 * high, 0.5)
    axes.set_ylim(max(0, low - room), high + room)
    axes.locator_params(axis="y", nbins=4)
    axes.set_ylabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _runs(data: Timeline, chosen: list[int]) -> list[tuple[float, float]]:
    """(begin, length) in seconds of bins that follow each other."""
    bins, rows = data.bins, data.rows
    found: list[tuple[float, float]] = []
    last = None
    for at in chosen:
        width = rows[bins.row[at] - 1].bin_s
        begin = bins.t_s[at] - width / 2
        if last == at - 1 and bins.row[last] == bins.row[at]:
            found[-1] = (found[-1][0], begin + width - found[-1][0])
        else:
            found.append((begin, width))
        last = at
    return found


def _lanes(axes: Axes, data: Timeline, lanes: list[str]) -> None:
    for at, name in enumerate(lanes):
        bad = name in data.slowing
        axes.broken_barh(_runs(data, data.reasons[name]), (at - 0.35, 0.7), facecolor=SLOWED if bad else "#777777",
                         edgecolor=INK if bad else "none", hatch="////" if bad else "", linewidth=0)  # fmt: skip
    axes.set_yticks(range(len(lanes)), lanes, fontsize=8)
    axes.set_ylim(len(lanes) - 0.4, -0.6)


def _rows(axes: Axes, data: Timeline) -> None:
    """What was timed, where rows end, and where the GPU was slowed."""
    whole: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "linewidth": 0, "zorder": 0}
    timed = [(row.timed_s[0], row.timed_s[1] - row.timed_s[0]) for row in data.rows if row.timed_s]
    axes.broken_barh(timed, (0, 1), facecolor=BAND, alpha=0.5, **whole)
    axes.vlines([row.end_s for row in data.rows], 0, 1, transform=axes.get_xaxis_transform(), color="#777777",
                linewidth=0.6, linestyle=":")  # fmt: skip
    slowed = _runs(data, sorted({at for name in data.slowing for at in data.reasons.get(name, [])}))
    axes.broken_barh(slowed, (0, 1), facecolor=SLOWED, alpha=0.25, **whole)
    axes.broken_barh(slowed, (0, 1), facecolor="none", edgecolor=SLOWED, hatch="///", **whole)


def _numbers(axes: Axes, rows: list[TimelineRow]) -> None:
    """The numbers of the rows above the first panel, in two heights where rows are narrow."""
    whole = rows[-1].end_s or 1
    narrow = any(row.end_s - row.begin_s < 0.03 * whole for row in rows)
    for row in rows:
        up = 3 + (8 if narrow and row.number % 2 == 0 else 0)
        axes.annotate(str(row.number), ((row.begin_s + row.end_s) / 2, 1), xycoords=("data", "axes fraction"),
                      xytext=(0, up), textcoords="offset points", ha="center", fontsize=7)  # fmt: skip
