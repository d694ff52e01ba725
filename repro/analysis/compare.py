"""`repro compare A B`: compares two bundles row by row, and the machines that measured them."""

from __future__ import annotations

import math
from dataclasses import replace

from repro import fingerprint
from repro.analysis.records import Implementation, Interval, Source, grouped
from repro.errors import UsageError
from repro.fingerprint.difference import differences, same_unit
from repro.judge.timing.speedups import SAME
from repro.records.comparison import (
    ComparedBundle,
    ComparedMachines,
    ComparedRow,
    ComparedSpeedup,
    ComparedTime,
    ComparedWord,
    Comparison,
    OnlyIn,
    VerdictChange,
)

# How far the same kernel differed on three GPUs of one model and part number; an interval of one run does not cover it.
OTHER_GPU = 0.07
ABSENT = "not among its rows"


def word(ratio: Interval, noise: float = 0.0, spread: float = 0.0) -> ComparedWord:
    """Return FASTER, SLOWER, SAME or AMBIGUOUS for B, from how much faster it is than A.

    noise: how far from 1 the A/A controls reach. spread: a further difference that no interval covers; within it
    nothing is FASTER or SLOWER.
    """
    edge = max(noise, SAME)
    beyond = max(edge, spread)
    if ratio.low >= 1 - edge and ratio.high <= 1 + edge:
        return "SAME"
    if ratio.low > 1 + beyond:
        return "FASTER"
    return "SLOWER" if ratio.high < 1 - beyond else "AMBIGUOUS"


_Pairs = dict[tuple[str, str], ComparedMachines]


def compare(a: Source, b: Source) -> Comparison:
    """Return the comparison, for `--json` and tables.

    Speedups compare between any two measurements, times only if no hard field of the machines differs. Of a bundle that
    is not a measurement only verdicts are compared. Raises UsageError if the bundles are of different verbs.
    """
    if a.verb != b.verb:
        raise UsageError(f"{a.name} is of `{a.verb}` and {b.name} of `{b.verb}`", "they share no row")
    b = _matched(a, b) if a.verb == "evaluate" else b
    common = [(one, b.implementations[key]) for key, one in a.implementations.items() if key in b.implementations]
    pairs = _machines(a, b, common)
    rows = [_row(one, other, pairs) for one, other in common]
    return Comparison(
        schema_version=1,
        a=_side(a),
        b=_side(b),
        rows=rows,
        only_a=_only(a, b),
        only_b=_only(b, a),
        verdict_changes=[
            VerdictChange(row=r.row, variant=r.variant, verdict=r.verdict, why=r.why)
            for r in rows
            if r.verdict[0] != r.verdict[1]
        ],
        fingerprints=list(pairs.values()),
        caveats=_caveats(pairs, timed=not (a.why_not or b.why_not), rows=rows),
    )


def worse(comparison: Comparison) -> bool:
    """Return whether a solution that was correct in A is not correct in B, or is SLOWER there.

    Its time decides where times compare, else its speedup over the best baseline.
    """
    changed = any(change.verdict[0] == "correct" for change in comparison.verdict_changes)
    return changed or any("SLOWER" in _words(row) for row in comparison.rows if row.verdict[0])


def _words(row: ComparedRow) -> list[ComparedWord | None]:
    if row.time_ms is not None and row.time_ms.word is not None:
        return [row.time_ms.word]
    return [speedup.word for name, speedup in row.speedup.items() if name == "best_same_class"]


def _matched(a: Source, b: Source) -> Source:
    """Return B with A's keys for rows of other names, if each bundle has a single such row of a problem."""

    def alone(one: Source, other: Source) -> dict[str, str]:
        left = grouped((each.row.problem, each.key) for each in one.solutions if each.key not in other.implementations)
        return {problem: keys[0][0] for problem, keys in left.items() if len(keys) == 1}

    ours, theirs = alone(a, b), alone(b, a)
    renamed = {theirs[problem]: key for problem, key in ours.items() if problem in theirs}
    found = {(renamed.get(row, row), name): each for (row, name), each in b.implementations.items()}
    return replace(b, implementations=found)


def _ids(a: Implementation, b: Implementation) -> tuple[str, str]:
    return a.row.fingerprint_id or "", b.row.fingerprint_id or ""


def _machines(a: Source, b: Source, common: list[tuple[Implementation, Implementation]]) -> _Pairs:
    """Return the differences of every pair of machines that measured a common row, where both are recorded."""
    pairs = {}
    for ids in dict.fromkeys(_ids(one, other) for one, other in common):
        mine, theirs = a.fingerprints.get(ids[0]), b.fingerprints.get(ids[1])
        if mine is not None and theirs is not None:
            pairs[ids] = ComparedMachines(a=ids[0], b=ids[1], same_unit=same_unit(mine, theirs),
                                          differences=differences(mine, theirs))  # fmt: skip
    return pairs


def _side(side: Source) -> ComparedBundle:
    return ComparedBundle(
        bundle=side.name,
        verb=side.verb,
        status=side.status,
        started=side.started,
        size=side.parameters.get("size"),
        device=side.parameters.get("device"),
        stacks=sorted({side.stack(each.row).label for each in side.implementations.values()}),
        machines={name: fingerprint.headline(value) for name, value in side.fingerprints.items()},
        measurement=not side.why_not,
        why_not=side.why_not,
    )


def _only(one: Source, other: Source) -> list[OnlyIn]:
    """Return what only one bundle has, with the other's reason if it planned the row."""
    return [
        OnlyIn(row=each.row.row, variant=each.name, reason=other.unmeasured.get(key[0], ABSENT))
        for key, each in one.implementations.items()
        if key not in other.implementations
    ]


def _row(a: Implementation, b: Implementation, pairs: _Pairs) -> ComparedRow:
    why_not = _why_not(a, b)
    noise = math.hypot(a.noise, b.noise)
    time, reason = (None, why_not) if why_not else _time(a, b, noise, pairs.get(_ids(a, b)))
    return ComparedRow(
        row=a.row.row, variant=" → ".join(dict.fromkeys([a.name, b.name])), problem=a.problem,
        verdict=[a.outcome, b.outcome], why=[a.why, b.why],
        speedup={} if why_not else _speedups(a, b, noise), time_ms=time, time_reason=reason,
        converged=[a.converged, b.converged],
    )  # fmt: skip


def _speedups(a: Implementation, b: Implementation, noise: float) -> dict[str, ComparedSpeedup]:
    speedups = {}
    for name, ours in a.speedups.items():
        if name in b.speedups:
            theirs = b.speedups[name]
            quotient = theirs.over(ours)
            best = {"baseline": [a.best, b.best]} if name == "best_same_class" else {}
            # the judge's own clock confirms no speedup of either side
            unsure = "UNCONFIRMED" in (a.word(name), b.word(name))
            speedups[name] = ComparedSpeedup(
                a=ours.record(), b=theirs.record(), ratio=quotient.value, ci95=quotient.ci95,
                word="AMBIGUOUS" if unsure else word(quotient, noise), **best,
            )  # fmt: skip
    return speedups


def _why_not(a: Implementation, b: Implementation) -> str:
    """Return why only the verdicts of two implementations compare, or ""."""
    for side, each in (("A", a), ("B", b)):
        if each.why_not:
            return f"{side}: {each.why_not}"
        if each.outcome not in ("", "correct"):
            return f"{side}: {each.outcome}; only correct solutions have a speed"
    return "" if a.problem == b.problem else f"A is of {a.problem}, B of {b.problem}: other sizes or another dtype"


def _time(
    a: Implementation, b: Implementation, noise: float, pair: ComparedMachines | None
) -> tuple[ComparedTime | None, str]:
    """Return both times (ms), and how they compare, or why they do not.

    `ratio` is B over A: under 1, B is faster.
    """
    if a.time_ms is None or b.time_ms is None:
        sides = " and ".join(side for side, each in (("A", a), ("B", b)) if each.time_ms is None)
        return None, f"no time in {sides}"
    apart = ComparedTime(a=a.time_ms.record(), b=b.time_ms.record(), ratio=None, ci95=None, word=None)
    if pair is None:
        return apart, "the machine is not recorded"
    hard = [f"{d.name} {d.a} and {d.b}" for d in pair.differences if d.hard]
    if hard:
        return apart, f"NOT-COMPARABLE: {'; '.join(hard)}"
    quotient = b.time_ms.over(a.time_ms)
    faster = a.time_ms.over(b.time_ms)
    spread = 0.0 if pair.same_unit else OTHER_GPU
    return ComparedTime(
        a=apart.a, b=apart.b, ratio=quotient.value, ci95=quotient.ci95,
        word=word(faster, noise, spread),
    ), ""  # fmt: skip


def _caveats(pairs: _Pairs, *, timed: bool, rows: list[ComparedRow]) -> list[str]:
    """Return what a reader must know of the machines beside the numbers, one sentence each."""
    every = {d.name: d for pair in pairs.values() for d in pair.differences}.values()
    hard, unknown, configured = (
        ", ".join(sorted({d.name for d in every if chosen(d)}))
        for chosen in (
            lambda d: d.hard,
            lambda d: d.klass == "hard" and not d.known,
            lambda d: d.klass == "configuration",
        )
    )
    one_gpu = all(pair.same_unit for pair in pairs.values())
    caveats = {
        f"The machines differ in {hard}: times are shown and not compared, speedups are.": bool(hard),
        f"Not known to be one GPU: two of one kind differ by up to {100 * OTHER_GPU:.0f} %, and a time that differs by "
        "less is AMBIGUOUS.": timed and not hard and not one_gpu,
        f"Only one side recorded {unknown}: taken as equal.": bool(unknown),
        f"Configuration differs ({configured}) and may account for part of a difference.": bool(configured),
        "Rows marked * had not converged when the time budget ended: their intervals are wider.":
            timed and not all(all(row.converged) for row in rows),
    }  # fmt: skip
    return [caveat for caveat, holds in caveats.items() if holds]
