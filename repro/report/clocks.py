"""The section on the GPU during the run: its clocks, power, temperature and what slowed it, as samples and in short."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from repro.bundle.write import Bundle
from repro.fingerprint import gpu, series
from repro.records.base import Record
from repro.records.row import Row
from repro.report import elements
from repro.report.elements import Bins, Cell, Figure, Panel, Section, Spread, Table, Timeline, TimelineRow
from repro.report.sources import Source

# Columns of a figure that a bundle's samples are drawn from, however many they are: a page of several stays small.
BINS, FEWEST = 240, 4
STATE = ("sm_mhz", "memory_mhz", "temperature_c", "power_w")
# Column of the series -> what it is called here, and the factor to its unit.
DRAWN = {
    "sm_mhz": ("sm_mhz", 1.0),
    "memory_mhz": ("memory_mhz", 1.0),
    "power_mw": ("power_w", 1e-3),
    "temperature_c": ("temperature_c", 1.0),
}
LONGEST_ALT = 12  # rows


def section(sources: list[Source]) -> Section:
    """A timeline for every bundle that holds samples, every row in numbers, and the state at its ends."""
    figures, text = [], []
    rows: list[list[Cell]] = []
    without: dict[str, list[str]] = {}
    for source in sources:
        found, why = _series(source)
        places = {each.row: number for number, each in enumerate(found, 1)}
        if found:
            figures.append(_figure(source, found))
        text += [
            f"{source.letter}: no samples of {', '.join(names)}: {reason}." for reason, names in why.items() if found
        ]
        if not found:
            without.setdefault("; ".join(why), []).append(source.letter)
        rows += [_line(source, name, places.get(name), window, timed) for name, window, timed in _windows(source)]
    if figures or rows:
        text += [
            f"Clocks while rows ran: not recorded in {', '.join(of)}: {why}." for why, of in without.items() if why
        ]
    if figures:
        text.insert(0, (
            "Rows stand one after another, each with the number that the table gives it; what lies between them was "
            "not sampled. A band reaches from the lowest to the highest sample, its line is their median. What was "
            "timed is shaded; hatched is where the hardware, heat or a power brake slowed the GPU. Times of a row that "
            "heat or a power brake slowed while it was timed are no measurement. A power cap is how a large GPU works."
        ))  # fmt: skip
    tables = []
    if rows:
        columns = ["row", "bundle", ("number", "integer"), "window", ("samples", "integer"), ("SM MHz", "spread"),
                   ("memory MHz", "spread"), ("W", "spread"), ("°C", "spread"), ("J", "quantity"),
                   ("s slowed by heat", "quantity"), "event reasons, share of samples",
                   ("times", "verdict")]  # fmt: skip
        caption = "While rows were timed, or ran where nothing was timed: median (lowest to highest)"
        tables.append(elements.table("sampled", caption, columns, rows))
    ends = _ends(sources)
    return elements.section("clocks", "Clocks during the run", text=text, figures=figures, tables=tables + ends)


# -- what bundles hold


@dataclass(frozen=True)
class Sampled:
    """The samples of a row. columns: name -> values; marks: s; why: why it counts as throttled."""

    row: str
    columns: dict[str, list[float]]
    marks: dict[str, float]
    why: str


@dataclass(frozen=True)
class Binned:
    """Samples of rows in bins. masks: clock event reasons."""

    t_s: list[float] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    panels: dict[str, Panel] = field(default_factory=dict)


class Window(Record):
    """Samples of a part of a row in short. reasons: clock event reason -> share of samples."""

    samples: int = 0
    sm_mhz: Spread | None = None
    memory_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    reasons: dict[str, float] = {}
    deltas: dict[str, Any] = {}


def _told(row: Row) -> dict[str, Any]:
    return (row.result.telemetry if row.result else None) or {}


def _series(source: Source) -> tuple[list[Sampled], dict[str, list[str]]]:
    """Return the samples of every row that has some; reason -> the rows that have none."""
    found: list[Sampled] = []
    missing: dict[str, list[str]] = {}
    for row in source.done:
        told = _told(row)
        try:
            columns = _columns(source.bundle, told)
        except (OSError, ValueError, TypeError, KeyError) as error:
            missing.setdefault(str(error), []).append(row.row)
            continue
        marks = {str(mark["name"]): mark["t_ms"] / 1e3 for mark in told.get("marks", [])}
        found.append(Sampled(row.row, columns, marks, series.throttled(told)))
    return found, missing


def _columns(bundle: Bundle, told: dict[str, Any]) -> dict[str, list[float]]:
    """A row's series, without what could not be queried as None. Raises ValueError with why there is none."""
    name = told.get("file")
    if not name:
        status = str(told.get("sampler", {}).get("status") or "it was written by a release that did not sample")
        raise ValueError("the sampler took none" if status == "ok" else status.removeprefix("off: "))
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError("the file that its row names lies outside the bundle")
    try:
        columns: dict[str, list[float]] = json.loads(bundle.read(name) or b"")["columns"]
        times = columns["t_ms"]
        whole = bool(times) and times == sorted(times) and all(len(values) == len(times) for values in columns.values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(f"{name} is missing or damaged")
    return columns


def _windows(source: Source) -> list[tuple[str, Window, bool]]:
    """(row, summary, whether it is of the timed part alone) of every row that was sampled: of the timed part, else of
    all of it."""
    found = []
    for row in source.done:
        windows = _told(row).get("windows") or {}
        timed = bool((windows.get("timing") or {}).get("samples"))
        window = windows["timing"] if timed else windows.get("job") or {}
        if window.get("samples"):
            found.append((row.row, Window.model_validate(window), timed))
    return found


# -- in numbers


def _line(source: Source, name: str, number: int | None, window: Window, timed: bool) -> list[Cell]:
    spreads = window.sm_mhz, window.memory_mhz, window.power_w, window.temperature_c
    deltas = window.deltas
    joules, slowed = deltas.get("energy_mj"), deltas.get("violation_thermal_ns")
    reasons = ", ".join(f"{why} {share:.0%}" for why, share in window.reasons.items())
    why = timed and series.throttled({"windows": {"timing": window.to_json()}})
    return [name, source.letter, number, "timed" if timed else "whole row", window.samples,
            *(Spread(median=s.median, min=s.min, max=s.max) if s else None for s in spreads),
            joules / 1e3 if isinstance(joules, int | float) else None,
            slowed / 1e9 if isinstance(slowed, int | float) else None, reasons or "none",
            "throttled" if why else "not throttled" if timed else None]  # fmt: skip


def throttled(source: Source) -> str:
    """Whether a GPU was seen slowed, as far as that was recorded."""
    windows = _windows(source)
    slowed = []
    for name, window, _ in windows:
        shares = {why: share for why, share in window.reasons.items() if why in series.SLOWED}
        if shares:
            slowed.append(f"{name} ({', '.join(f'{why} in {share:.1%} of samples' for why, share in shares.items())})")
    if slowed:
        return f"the GPU was slowed during {'; '.join(slowed)}."
    if count := sum(window.samples for _, window, _ in windows):
        return f"of {count} samples in {len(windows)} rows none shows the GPU slowed by heat or power brakes."
    ends = [(row, _value(found, "after", "clock_event_reasons")) for row, found in _states(source)]
    known = [(row, gpu.reasons(bits)) for row, bits in ends if bits is not None]
    if not known:
        return "throttling was not recorded."
    told = [f"{row} ({', '.join(names)})" for row, names in known if set(names) & set(series.SLOWED)]
    if told:
        return f"the GPU was slowed at the end of {'; '.join(told)}."
    return "at the end of no row was the GPU slowed by heat or power brakes; during the rows it was not recorded."


def _states(source: Source) -> list[tuple[str, dict[str, Any]]]:
    return [(row.row, row.result.dynamic) for row in source.done if row.result]


def _value(found: dict[str, Any], when: str, name: str) -> Any:
    return (found.get(when) or {}).get(name, {}).get("value")


def _ends(sources: list[Source]) -> list[Table]:
    """The GPU's state right before and right after every row."""
    rows = []
    for source in sources:
        for name, found in _states(source):
            if not any(_value(found, when, "sm_mhz") is not None for when in ("before", "after")):
                continue
            row: list[Cell] = [name, source.letter]
            row += [_value(found, when, each) for each in STATE for when in ("before", "after")]
            energy = [_value(found, when, "energy_mj") for when in ("before", "after")]
            row.append((energy[1] - energy[0]) / 1e3 if None not in energy else None)
            bits = _value(found, "after", "clock_event_reasons")
            rows.append([*row, None if bits is None else ", ".join(gpu.reasons(bits)) or "none"])
    names = {"sm_mhz": "SM MHz", "memory_mhz": "memory MHz", "temperature_c": "°C", "power_w": "W"}
    columns = ["row", "bundle",
               *((f"{names[each]} {when}", "quantity") for each in STATE for when in ("before", "after")),
               ("J in all", "quantity"), "clock event reasons after"]  # fmt: skip
    return [elements.table("clocks", "The GPU right before and right after each row", columns, rows)] * bool(rows)


# -- drawn


def _figure(source: Source, found: list[Sampled]) -> Figure:
    """Samples of all rows on one axis of seconds, in bins that keep their extremes and every reason."""
    spans = [_span(row) for row in found]
    total = sum(end - begin for begin, end in spans) or 1.0
    rows: list[TimelineRow] = []
    bins = Binned()
    at = 0.0
    for number, (row, (begin, end)) in enumerate(zip(found, spans, strict=True), 1):
        marks, length = row.marks, end - begin
        n = max(FEWEST, round(BINS * length / total))
        timed = [round(at + marks[name] - begin, 2) for name in ("warm", "timed") if name in marks]
        rows.append(TimelineRow(
            row=row.row, number=number, begin_s=round(at, 2), end_s=round(at + length, 2),
            bin_s=round(length / n, 4), timed_s=timed if len(timed) == 2 else None, throttled=row.why,
        ))  # fmt: skip
        _binned(bins, row.columns, number, at - begin, (begin, end), n)
        at += length
    masks, slowing = bins.masks, list(series.SLOWED)
    lanes = {name: [at for at, mask in enumerate(masks) if name in gpu.reasons(mask)] for name in _names(masks)}
    return Figure(
        id=f"clocks-{source.letter}", kind="timeline",
        title=f"Clocks during {source.letter}: {source.machine}, {source.stack}", alt=_alt(found, lanes, len(masks)),
        data=Timeline(rows=rows, bins=Bins(t_s=bins.t_s, row=bins.row, **bins.panels), reasons=lanes, slowing=slowing),
    )  # fmt: skip


def _names(masks: list[int]) -> list[str]:
    return list(dict.fromkeys(name for bit in sorted({1 << n for m in masks for n in range(64) if m >> n & 1})
                              for name in gpu.reasons(bit)))  # fmt: skip


def _span(row: Sampled) -> tuple[float, float]:
    """When a row began and ended, in seconds of its own clock."""
    times = [t / 1e3 for t in (row.columns["t_ms"][0], row.columns["t_ms"][-1])]
    marks = row.marks
    return min(times[0], marks.get("before", times[0])), max(times[1], marks.get("after", times[1]))


def _binned(
    bins: Binned, columns: dict[str, list[float]], number: int, shift: float, span: tuple[float, float], n: int
) -> None:
    """Appends a row's samples in `n` bins of equal length: middle of the bin, extremes and median, reasons or-ed."""
    begin, width = span[0], (span[1] - span[0]) / n or 1.0
    held: dict[int, list[int]] = {}
    for at, t in enumerate(columns["t_ms"]):
        held.setdefault(min(n - 1, max(0, math.floor((t / 1e3 - begin) / width))), []).append(at)
    for place, samples in sorted(held.items()):
        bins.t_s.append(round(shift + begin + (place + 0.5) * width, 2))
        bins.row.append(number)
        masks = [max(0, int(columns["reasons"][at])) for at in samples] if "reasons" in columns else []
        bins.masks.append(reduce(or_, masks, 0))
        for column, (name, scale) in DRAWN.items():
            if column not in columns and name not in bins.panels:
                continue
            known = [columns[column][at] * scale for at in samples if column in columns and columns[column][at] >= 0]
            kept = bins.panels.setdefault(name, {end: [None] * (len(bins.t_s) - 1) for end in ("min", "median", "max")})
            for end, of in (("min", min), ("median", statistics.median), ("max", max)):
                kept[end].append(round(of(known)) if known else None)


def _alt(found: list[Sampled], lanes: dict[str, list[int]], n: int) -> str:
    """The figure in words: a row in a few, and where reasons were seen."""
    told = []
    for number, row in enumerate(found, 1):
        words = []
        for column, unit in (("sm_mhz", "MHz SM clock"), ("power_mw", "W"), ("temperature_c", "°C")):
            known = [v for v in row.columns.get(column, []) if v >= 0]
            if known:
                low, high = (round(v * DRAWN[column][1]) for v in (min(known), max(known)))
                words.append(f"{low} to {high} {unit}" if low != high else f"{low} {unit}")
        told.append(f"{number} {row.row} {', '.join(words)}" + (f" ({row.why})" if row.why else ""))
    more = f"; and {len(told) - LONGEST_ALT} more" if len(told) > LONGEST_ALT else ""
    seen = ", ".join(f"{name} in {len(at) / n:.0%}" for name, at in lanes.items()) or "none"
    return f"Samples over time, row after row: {'; '.join(told[:LONGEST_ALT])}{more}. Reasons, share of time: {seen}."
