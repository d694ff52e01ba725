"""Sections on speed: every correct solution's time and speedups, and how near it is to what the GPU can do."""

from __future__ import annotations

from collections.abc import Iterator

from repro.analysis import records
from repro.analysis.records import Implementation, Source
from repro.errors import UsageError
from repro.problems import catalogue
from repro.records import wording
from repro.report import elements, sources
from repro.report.elements import Cell, Head, Quantity, Section, Table
from repro.report.sources import Solution

# Baselines whose times stand beside a solution's, as columns name them.
_TIMED = {"eager": "eager", "compile": "compile", "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}
# The ceiling of a class's arithmetic: what tf32 holds also fits fp16.
_CEILING = {"fp32": "fp32_tflop_s", "tf32": "tf32_tflop_s", "fp16": "fp16_tflop_s", "bf16": "bf16_tflop_s"}
_UNCONFIRMED = (
    "UNCONFIRMED: faster by the solution's own clock, which the judge's clock cannot confirm. The figure shows it "
    "hollow."
)


def section(of: list[Source]) -> Section:
    """Every correct solution's time and speedups, one group of columns a bundle."""
    if not any(each.timed for source in of for each in source.solutions):  # the summary says so
        return elements.section("speedups", "Speedups")
    groups = [(verb, [source for source in of if source.verb == verb]) for verb in records.VERBS]
    unconfirmed = any(each.word("best_same_class") == "UNCONFIRMED" for source in of for each in source.solutions)
    return elements.section("speedups", "Speedups", text=[_UNCONFIRMED] * unconfirmed,
                            tables=[_table(verb, group) for verb, group in groups if group])  # fmt: skip


def _table(verb: str, group: list[Source]) -> Table:
    """The solutions of bundles of one verb but negative controls, one line a solution."""
    columns: list[Head] = ["row", "solution"]
    for source in group:
        columns += _columns(f"{source.letter} " if len(group) > 1 else "")
    by_key = records.grouped(
        (each.key, (source.letter, each)) for source in group for each in source.solutions if not each.row.control
    )
    rows = []
    for pairs in by_key.values():
        (_, first), mine = pairs[0], dict(pairs)
        cells = (cell for source in group for cell in _cells(source, mine.get(source.letter)))
        rows.append([first.row.row, first.name, *cells])
    legend = "; ".join(f"{s.letter} is {s.machine}, {sources.stack(s)}, {s.started[:16]}" for s in group)
    caption = f"Times and speedups of `{verb}` with 95 % intervals" + (f": {legend}" if len(group) > 1 else "")
    return elements.table(f"speedups-{verb}", caption, columns, rows)


def _columns(start: str) -> list[Head]:
    return [
        (f"{start}ms", "ms", 2),
        *((f"{start}{name} ms", "ms", 6) for name in _TIMED.values()),
        (f"{start}over eager", "ratio", 3),
        (f"{start}over compile", "ratio", 4),
        (f"{start}over best", "ratio", 2),
        (f"{start}best", "text", 5),
        (f"{start}word", "verdict", 3),
        (f"{start}own kernels", "percent", 7),
    ]


def _cells(source: Source, each: Implementation | None) -> list[Cell]:
    """The cells of one bundle's group of columns."""
    if each is None or not each.timed:
        return [*[None] * 9, _word(source, each), None]
    time, verdict = each.time_ms, each.judgement
    assert time is not None
    beside = (source.implementations.get((each.key[0], name)) for name in _TIMED)
    return [
        Quantity(value=time.value, ci95=time.ci95),
        *(baseline.time_ms.value if baseline and baseline.time_ms else None for baseline in beside),
        *(elements.speedup(verdict.speedup.get(over)) for over in sources.MEANS),
        each.best or None, each.word("best_same_class"), verdict.own_kernel_share,
    ]  # fmt: skip


def _word(source: Source, each: Implementation | None) -> str | None:
    """Why a solution has no time."""
    if each is None:
        return None
    if each.outcome != "correct":
        return wording.VERDICTS[each.outcome]
    return "no measurement" if each.why_not and not source.why_not else None


# -- roofline


def _work(problem: str) -> tuple[int, int] | None:
    """Compulsory bytes and operations of a shipped problem at full size, None where they are not known."""
    try:
        loaded = catalogue.load(problem)
    except UsageError:
        return None
    if loaded.work is None:
        return None
    elements = loaded.work.read_elements + loaded.work.written_elements
    return elements * catalogue.ITEMSIZE[loaded.dtype], loaded.work.flop


def _achieved(of: Solution) -> Iterator[list[Cell]]:
    """How near a solution's time is to what its GPU was measured to reach, where that can be said."""
    verdict, ceilings, needed = of.verdict, of.result.ceilings, _work(of.verdict.problem)
    measurable = verdict.verdict == "correct" and verdict.measurement and of.source.timed and not of.row.control
    if measurable and verdict.time_ms and verdict.precision_class and ceilings and needed:
        ms, (size, flop), klass = verdict.time_ms.median, needed, verdict.precision_class
        gb_s, tflop_s, peak = size / ms / 1e6, flop / ms / 1e9, getattr(ceilings, _CEILING[klass])
        taken = None if verdict.call_bytes is None else verdict.call_bytes / 1e6
        yield [of.row.problem, of.variant, of.source.letter, klass, ms, size / 1e6, taken, flop / 1e9, gb_s,
               gb_s / ceilings.copy_tb_s / 1e3, tflop_s, tflop_s / peak if peak else None,
               verdict.floor_fraction]  # fmt: skip


def roofline(of: list[Source]) -> Section:
    """Achieved bytes and operations a second against the ceilings that were measured in the same job."""
    rows = [cells for source in of for solution in sources.solutions(source) for cells in _achieved(solution)]
    columns = ["problem", "solution", "bundle", "class", ("ms", "ms", 2), ("MB", "quantity"),
               ("MB a call takes", "quantity"), ("GFLOP", "quantity"), ("GB/s", "quantity", 2),
               ("of copy", "percent", 2), ("TFLOP/s", "quantity", 3), ("of class", "percent", 3),
               ("of floor", "percent", 1)]  # fmt: skip
    text = (
        "Bytes are the compulsory traffic and operations the plain algorithm's, as problems/suites.toml counts them. "
        "Ceilings are this GPU's, measured in the same job by copies and matrix products: none is from a data sheet. "
        "Memory that is only read is faster than a copy, so that `of copy` may pass 100 %; a faster algorithm may pass "
        "100 % of its class. `of floor` is the least time that the ceilings allow over the time measured."
    )
    caption = "Achieved against measured ceilings"
    return elements.tabled("roofline", "Distance from the hardware", caption, columns, rows, note=text)
