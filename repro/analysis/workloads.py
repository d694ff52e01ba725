"""One verdict of a solution's verdicts at several shapes: right only where all are, speedups as weighted means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repro.analysis import records
from repro.analysis.compare import word
from repro.analysis.records import Interval
from repro.judge.timing import intervals
from repro.records import wording
from repro.records.verdict import Against, Ratio, Reason, Speedup, Speedups, Verdict


def combined(every: list[Verdict]) -> Verdict:
    """Return the verdict at all shapes; of one shape its own. A neighbour that is wrong is a label.

    Class and distance are those of the first wrong shape, or of that with the largest distance.
    """
    if len(every) == 1:
        return every[0]
    kinds = records.grouped(((each.workload.held_out, each.verdict == "correct"), each) for each in every)
    right, wrong, specialised = (kinds.get(kind, []) for kind in ((False, True), (False, False), (True, False)))
    base, declared = max(right or every, key=lambda each: each.rel_l2 or 0.0), [*wrong, *right]
    base = next(iter(wrong), base)
    return Verdict(
        problem=base.problem, solution=base.solution, verdict=base.verdict, rel_l2=base.rel_l2, where=base.where,
        precision_class=base.precision_class, reasons=_reasons(wrong, len(declared)), speedup=_means(declared),
        labels=sorted({*base.labels, *[wording.SPECIALISED][: len(specialised)]}), trust=base.trust,
        time_reason="it has a time at each shape", measurement=all(each.measurement for each in declared),
        against=_against(declared), workloads=every,
    )  # fmt: skip


def told(verdict: Verdict, over: str = "") -> str:
    """Return `6 shapes; worst 0.93x at M=64`, or "" for one shape.

    over: the baseline of the speedups, or by default the solution of `--against`.
    """
    ratios = [(one.ratio, each.workload.name) for each in verdict.workloads
              if each.measurement and (one := each.speedup.get(over, each.against)) and one.ratio]  # fmt: skip
    worst = "; worst {:.3g}x at {}".format(*min(ratios)) if ratios else ""
    return f"{len(ratios) or len(verdict.workloads)} shapes{worst}" if verdict.workloads else ""


def _reasons(wrong: list[Verdict], of: int) -> list[Reason]:
    """Return a sentence on all shapes, and the reasons of the first wrong one; none if all are right."""
    if not wrong:
        return []
    where = records.grouped((wording.word(each), each.workload.name) for each in wrong)
    what = "; ".join(f"{what} at {wording.listed(at)}" for what, at in where.items())
    detail = f"{of - len(wrong)} of {of} shapes: {what} ({wording.why(wrong[0])})"
    return [Reason(code="shapes", detail=detail), *wrong[0].reasons]


def _means(every: list[Verdict]) -> Speedups:
    """Return the mean speedup over every baseline that all shapes have. UNCONFIRMED ones count as 1."""
    speedups = records.grouped((name, one.counted) for each in every for name, one in each.speedup.items())
    return {name: Speedup(**_mean(of, every)) for name, of in speedups.items() if len(of) == len(every)}


def _mean(ratios: Sequence[Ratio | Against], every: list[Verdict]) -> dict[str, Any]:
    weights = [each.workload.weight for each in every]
    return intervals.geometric_mean([ratio.to_json() for ratio in ratios], weights)


def _against(every: list[Verdict]) -> Against | None:
    """Return the mean comparison with the old solution, or why there is none. It is SLOWER if it is at any shape."""
    found = [each.against for each in every if each.against]
    worst = min(found, key=lambda one: (one.ratio is not None, one.word != "SLOWER"), default=None)
    if worst is None or worst.ratio is None:
        return worst
    mean, noise = _mean(found, every), max(one.noise or 0.0 for one in found)
    told = "SLOWER" if worst.word == "SLOWER" else word(Interval(mean["ratio"], *mean["ci95"]), noise)
    return worst.model_copy(update={"ratio": mean["ratio"], "ci95": mean["ci95"], "noise": noise, "word": told})
