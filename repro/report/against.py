"""How solutions compare with the one of `repro evaluate --against`: a sentence each, and a table for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from repro.analysis import gate, workloads
from repro.analysis.records import Source
from repro.records import wording
from repro.records.verdict import Verdict
from repro.report import elements
from repro.report.elements import Cell, Table


def sentences(source: Source) -> list[str]:
    """Return a sentence for each new solution of a bundle; none if it has no old one."""
    if "against" not in source.parameters:
        return []
    verdicts = [verdict for verdict in gate.judged(source.done) if verdict.against]
    several = len({verdict.problem for verdict in verdicts}) > 1
    return [(f"{verdict.problem}: " if several else "") + sentence(verdict) for verdict in verdicts]


def sentence(verdict: Verdict) -> str:
    """Return `NEW is 1.043x as fast as OLD [1.039, 1.047]: FASTER`, or why they are not compared; of several shapes,
    also the worst."""
    against = verdict.against
    assert against is not None
    if verdict.verdict != "correct":
        return f"{verdict.solution}: {wording.sentence(verdict)}"
    if against.ratio is None or against.ci95 is None:
        return f"{verdict.solution} is correct; speed not compared with {against.solution}: {against.why}"
    low, high = against.ci95
    over = f" weighted over {workloads.told(verdict)}" * bool(verdict.workloads)
    return (
        f"{verdict.solution} is {against.ratio:.3f}x as fast as {against.solution} [{low:.3f}, {high:.3f}]{over}: "
        f"{against.word}"
    )


def table(verdicts: Sequence[Verdict]) -> Table:
    """Return one line a solution, and one for each of its shapes. Columns that hold nothing are left out."""
    verdicts = [each for one in verdicts for each in (one, *one.workloads)]
    columns = ["problem", ("solution", "text", 0), ("verdict", "verdict"), "precision", ("ms", "ms"), "sizes",
               ("as fast as", "text"), ("speedup", "ratio"), ("", "verdict"), "why"]  # fmt: skip
    return elements.table("results", "", columns, map(_cells, verdicts))


def _cells(verdict: Verdict) -> list[Cell]:
    against, time = verdict.against, verdict.time_ms if verdict.measurement else None
    ratio = elements.quantity(against.ratio, against.ci95) if against else None
    return [
        verdict.problem, verdict.solution, wording.word(verdict), verdict.precision_class,
        elements.quantity(time.median, time.ci95) if time else None, verdict.sizes,
        against.solution if against and ratio else None, ratio, against.word if against else None,
        "; ".join(filter(None, [wording.why(verdict), against.why if against else ""])),
    ]  # fmt: skip
