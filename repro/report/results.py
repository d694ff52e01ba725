"""Sections on what was measured: speedups, roofline, correctness."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from repro.analysis import records as measured
from repro.analysis.records import Record
from repro.errors import UsageError
from repro.problems import catalogue
from repro.records import wording
from repro.report import elements
from repro.report.elements import Bars, Cell, Figure, Head, Quantity, Reached, Roofline, Section
from repro.report.sources import Judged, Source, judged
from repro.studies import artifact_study

BASELINES = {"eager": "eager", "compile": "torch.compile", "best_same_class": "best torch baseline of its class"}
# Baselines whose times stand beside a solution's, as columns name them.
TIMED = {"eager": "eager", "compile": "compile", "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}
# Shares that a profile shows, by their columns.
SHARES = {"dram_pct": "DRAM", "sm_pct": "SM", "compute_memory_pct": "compute-memory", "tensor_pct": "tensor",
          "warps_pct": "occupancy", "l1_hit_pct": "L1 hit"}  # fmt: skip
# The ceiling of a class's arithmetic: what tf32 holds also fits fp16.
CEILING = {"fp32": "fp32_tflop_s", "tf32": "tf32_tflop_s", "bf16": "bf16_tflop_s"}


def _groups(sources: list[Source]) -> list[tuple[str, list[Source]]]:
    """Sources that can stand in one table: those of one verb."""
    found = [(verb, [s for s in sources if s.verb == verb and s.measured]) for verb in measured.VERBS]
    return [(verb, group) for verb, group in found if group]


def _records(group: list[Source]) -> dict[tuple[str, str], dict[str, Record]]:
    """Key -> letter -> record of every solution but controls, in the order of the bundles."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for source in group:
        assert source.measured is not None
        for key, record in source.measured.records.items():
            if record.verdict and not record.control:
                found.setdefault(key, {})[source.letter] = record
    return found


def _timed(record: Record | None) -> bool:
    return record is not None and record.verdict == "correct" and not record.why_not and record.time_ms is not None


def _label(record: Record) -> str:
    """Row and, where a row has several solutions, which one."""
    return f"{record.row} {record.variant}" if record.key[1] else record.row


def _speedup(record: Record | None, over: str) -> Quantity | None:
    if record is None or not _timed(record) or over not in record.speedups:
        return None
    found = record.speedups[over]
    unconfirmed = record.words.get(over) == "UNCONFIRMED"
    return Quantity(value=found.value, ci95=[found.low, found.high], unconfirmed=unconfirmed)


def rounds(sources: list[Source]) -> Section:
    """Every kernel of a search's rounds, where `benchmark --rounds` judged them: one line a kernel."""
    rows: list[list[Cell]] = []
    for source in sources:
        for artifact in source.report.artifacts:
            for each in artifact.rounds:
                ratio = each.over_input
                rows.append([
                    artifact.problem, source.letter, str(each.round) if each.round else "input",
                    each.why or each.verdict, each.time_ms.median if each.time_ms else None,
                    each.published_protocol_ms, each.published_ms,
                    Quantity(value=ratio.ratio, ci95=ratio.ci95) if ratio else None,
                    "best so far" if each.best else None,
                ])  # fmt: skip
    columns = ["problem", "bundle", "round", ("verdict", "verdict"), ("ms", "ms"),
               ("published protocol here, ms", "ms"), ("published, ms", "ms"), ("over input kernel", "ratio"),
               "running best"]  # fmt: skip
    text = "Each round's kernel was judged and timed here, beside its input kernel. Published times are its trace's."
    table = elements.table("measured-rounds", "Rounds of every search", columns, rows)
    return elements.section("measured-rounds", "Rounds", text=[text] if rows else [], tables=[table])


def profiles(sources: list[Source]) -> Section:
    """Hardware counters of every kernel, where `benchmark --profile` read them: one line a kernel and dtype."""
    rows: list[list[Cell]] = []
    for source in sources:
        for artifact in source.report.artifacts:
            for each in artifact.profiles:
                got = each.totals
                rate, ns = got["dram_bytes_per_s"], got["duration_ns"]
                shares = [None if (share := got[key]) is None else share / 100 for key in SHARES]
                state = each.state.replace("_", " ") + (f": {each.why}" if each.why else "")
                rows.append([
                    artifact.problem, source.letter, artifact_study.KERNEL_WORDS[each.kernel], each.dtype,
                    None if ns is None else ns / 1e6, None if rate is None else rate / 1e9, *shares, state,
                ])  # fmt: skip
    columns = ["artifact", "bundle", "kernel", "dtype", ("ms", "ms"), ("DRAM GB/s", "quantity"),
               *((title, "percent") for title in SHARES.values()), "state"]  # fmt: skip
    text = (
        "One call of each kernel under Nsight Compute, cold caches, clocks as the machine runs them; all launches "
        "together. Shares are of what the GPU can sustain, weighted by duration. The figures are the profiled "
        "process's own and decide nothing."
    )
    table = elements.table("profiles", "Hardware counters", columns, rows)
    return elements.section("profiles", "Profiles", text=[text] if rows else [], tables=[table])


def speedups(sources: list[Source]) -> Section:
    """Every correct solution's time and speedups, one group of columns a bundle; a forest and bars."""
    tables, figures, text = [], [], []
    for verb, group in _groups(sources):
        text += [
            f"{s.letter}: no time is shown: {s.measured.why_not}." for s in group if s.measured and s.measured.why_not
        ]
        found = _records(group)
        text += _doubted(group, found) + _controls(group)
        columns: list[Head] = ["row", "solution"]
        for source in group:
            start = f"{source.letter} " if len(group) > 1 else ""
            columns += [(f"{start}ms", "ms"), *((f"{start}{name} ms", "ms") for name in TIMED.values()),
                        (f"{start}over eager", "ratio"), (f"{start}over compile", "ratio"),
                        (f"{start}over best", "ratio"), f"{start}best", (f"{start}word", "verdict"),
                        (f"{start}own kernels", "percent")]  # fmt: skip
        rows: list[list[Cell]] = []
        for records in found.values():
            first = next(iter(records.values()))
            row: list[Cell] = [first.row, first.variant]
            for source in group:
                record = records.get(source.letter)
                time = record.time_ms if record and _timed(record) else None
                row += [
                    Quantity(value=time.value, ci95=[time.low, time.high]) if time else None,
                    *(_baseline(source, record, name) for name in TIMED),
                ]
                row += [_speedup(record, over) for over in BASELINES]
                best = record.best if record and _timed(record) else None
                row += [best, _word(source, record), _share(source, record)]
            rows.append(row)
        caption = f"Times and speedups of `{verb}` with 95 % intervals"
        if len(group) > 1:
            caption += f": {_legend(group)}"
        tables.append(elements.table(f"speedups-{verb}", caption, columns, rows))
        figures += [bars for bars in (_bars(verb, source, found) for source in group) if bars]
        words = {record.words.get("best_same_class") for records in found.values() for record in records.values()}
        if "UNCONFIRMED" in words:
            text.append(
                "UNCONFIRMED: faster by the solution's own clock, which the judge's clock cannot confirm. Figures show "
                "it hollow or with a `?`."
            )
    if not figures:  # nothing correct was timed: the summary says so
        return elements.section("speedups", "Speedups")
    return elements.section("speedups", "Speedups", text=dict.fromkeys(text), figures=figures, tables=tables)


def _baseline(source: Source, record: Record | None, name: str) -> float | None:
    """The median time of a torch baseline beside a solution that was timed."""
    assert source.measured is not None
    if record is None or not _timed(record):
        return None
    found = source.measured.records.get((record.key[0], name))
    return found.time_ms.value if found is not None and found.time_ms is not None else None


def _share(source: Source, record: Record | None) -> float | None:
    """Which share of its GPU time a solution spends in kernels of its own, where it was profiled."""
    if record is None or not _timed(record):
        return None
    found = source.rows[record.row].judged
    return next((e.own_kernel_share for e in found.results if e.solution == record.variant), None) if found else None


def _controls(group: list[Source]) -> list[str]:
    """How the A/A controls came out: eager against eager in another process."""
    return [
        f"A/A control of {source.letter}: {c.cover} of {c.n} intervals hold 1, the widest ±"
        f"{100 * c.widest:.2f} %, the furthest ratio {100 * c.furthest:.2f} % from 1."
        for source in group
        if source.timed and (c := source.report.control).n
    ]


def _word(source: Source, record: Record | None) -> str | None:
    """What the last column of a bundle says: the judge's word, or why there is no time."""
    if record is None or _timed(record):
        return record.words.get("best_same_class") if record else None
    if record.verdict != "correct":
        return wording.VERDICTS[record.verdict]
    return "no measurement" if record.why_not and source.measured and not source.measured.why_not else None


def _doubted(group: list[Source], found: dict[tuple[str, str], dict[str, Record]]) -> list[str]:
    """Rows of bundles that are measurements whose own times are none, by reason."""
    told: dict[tuple[str, str], list[str]] = {}
    for source in group:
        records = [records[source.letter] for records in found.values() if source.letter in records]
        for record in records if source.measured and not source.measured.why_not else []:
            if record.why_not:
                told.setdefault((source.letter, record.why_not), []).append(record.row)
    return [
        f"{letter}: no time of {', '.join(dict.fromkeys(rows))} is shown: {why}."
        for (letter, why), rows in told.items()
    ]


def _legend(group: list[Source]) -> str:
    return "; ".join(f"{s.letter} is {_which(s)}" for s in group)


def _which(source: Source) -> str:
    """Machine, stack and minute: two bundles may share the first two."""
    return f"{source.machine}, {source.stack}, {source.report.started[:16]}"


def _value(found: Quantity) -> str:
    return f"{found.value:.3g}x" + (" (unconfirmed)" if found.unconfirmed else "")


def _bars(verb: str, source: Source, every: dict[tuple[str, str], dict[str, Record]]) -> Figure | None:
    chosen = [records[source.letter] for records in every.values() if _timed(records.get(source.letter))]
    every_one = {name: [_speedup(record, over) for record in chosen] for over, name in BASELINES.items()}
    series = {name: values for name, values in every_one.items() if any(values)}
    if not series:
        return None
    lines = []
    for at, record in enumerate(chosen):
        speeds = {name: values[at] for name, values in series.items()}
        told = [f"{_value(speed)} over {name}" for name, speed in speeds.items() if speed]
        lines.append(f"{_label(record)} {', '.join(told)}")
    return Figure(
        id=f"bars-{verb}-{source.letter}",
        kind="bars",
        title=f"Speedups of {source.letter}: {source.machine}, {source.stack}",
        alt=f"Bars of speedup with 95 % intervals, from 1, logarithmic: {'; '.join(lines)}.",
        data=Bars(groups=[_label(record) for record in chosen], series=series, x="speedup"),
    )


def work(problem: str) -> tuple[int, int] | None:
    """Compulsory bytes and operations of a shipped problem at full size, None where they are not known."""
    try:
        loaded = catalogue.load(problem)
    except UsageError:
        return None
    if loaded.work is None:
        return None
    elements = loaded.work.read_elements + loaded.work.written_elements
    return elements * catalogue.ITEMSIZE[loaded.dtype], loaded.work.flop


@dataclass(frozen=True)
class Near:
    """How near a solution's time is to what its GPU was measured to reach. size: compulsory bytes; flop: operations."""

    klass: str
    size: int
    flop: int
    ms: float
    copy_gb_s: float
    peak_tflop_s: float | None
    floor_fraction: float | None

    @property
    def gb_s(self) -> float:
        return self.size / self.ms / 1e6

    @property
    def tflop_s(self) -> float:
        return self.flop / self.ms / 1e9


def _near(of: Judged) -> Near | None:
    """How near a solution's time is to what its GPU was measured to reach, or None where that cannot be said."""
    entry, ceilings, needed = of.entry, of.result.ceilings, work(of.entry.problem)
    measurable = entry.verdict == "correct" and entry.measurement and of.source.timed and not of.row.control
    if not (measurable and entry.time_ms and entry.precision_class and ceilings and needed):
        return None
    peak = getattr(ceilings, CEILING[entry.precision_class])
    return Near(
        entry.precision_class, *needed, entry.time_ms.median, ceilings.copy_tb_s * 1e3, peak, entry.floor_fraction
    )


def roofline(sources: list[Source]) -> Section:
    """Achieved bytes and operations a second against the ceilings that were measured in the same cell."""
    figures: list[Figure] = []
    rows: list[list[Cell]] = []
    for source in sources:
        near = [(each, found) for each in judged(source) if (found := _near(each))]
        for each, f in near:
            got: list[Cell] = [f.klass, f.ms, f.size / 1e6, f.flop / 1e9, f.gb_s, f.gb_s / f.copy_gb_s, f.tflop_s]
            of_class = f.tflop_s / f.peak_tflop_s if f.peak_tflop_s else None
            rows.append([each.row.problem, each.variant, source.letter, *got, of_class, f.floor_fraction])
        if near:
            figures.append(_roof(source, near))
    columns = ["problem", "solution", "bundle", "class", ("ms", "ms"), ("MB", "quantity"), ("GFLOP", "quantity"),
               ("GB/s", "quantity"), ("of copy", "percent"), ("TFLOP/s", "quantity"), ("of class", "percent"),
               ("of floor", "percent")]  # fmt: skip
    text = [
        "Bytes are the compulsory traffic and operations the plain algorithm's, as problems/suites.toml counts them. "
        "Ceilings are this GPU's, measured in the same cell by copies and matrix products: none is from a data sheet. "
        "Memory that is only read is faster than a copy, so that `of copy` may pass 100 %; a faster algorithm may pass "
        "100 % of its class. `of floor` is the least time that the ceilings allow over the time measured."
    ]
    if not rows:
        return elements.section("roofline", "Distance from the hardware")
    table = elements.table("roofline", "Achieved against measured ceilings", columns, rows)
    return elements.section("roofline", "Distance from the hardware", text=text, figures=figures, tables=[table])


def _roof(source: Source, near: list[tuple[Judged, Near]]) -> Figure:
    points = [Reached(label=_short(each), x=found.flop / found.size, y=found.tflop_s,
                      series=each.entry.solution if source.verb == "benchmark" else "solutions")
              for each, found in near if found.flop > 0]  # fmt: skip
    peaks: dict[str, list[float]] = {}
    for _, found in near:
        if found.peak_tflop_s:
            peaks.setdefault(found.klass, []).append(found.peak_tflop_s)
    roofs = {klass: statistics.median(peaks[klass]) for klass in sorted(peaks)}
    copy = statistics.median(found.copy_gb_s for _, found in near)
    told = "; ".join(f"{p.label} {p.series} {p.y:.3g} TFLOP/s at {p.x:.3g} FLOP a byte" for p in points)
    over = ", ".join(f"{klass} {value:.3g} TFLOP/s" for klass, value in roofs.items())
    return Figure(
        id=f"roofline-{source.letter}",
        kind="roofline",
        title=f"Roofline of {source.letter}: {source.machine}, {source.stack}",
        alt=f"Measured ceilings: copy {copy:.4g} GB/s, {over}. Solutions: {told}.",
        data=Roofline(points=points, copy_tb_s=copy / 1e3, roofs=roofs),
    )


def _short(of: Judged) -> str:
    return of.row.problem.split("_")[0] if of.row.number is not None else of.entry.problem.partition("@")[0]
