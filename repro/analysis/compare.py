"""`repro compare A B`: compares two bundles row by row, and the machines that measured them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from repro import fingerprint
from repro.analysis.records import Interval, Measured, Record, stack
from repro.errors import UsageError
from repro.fingerprint.difference import Difference, differences, same_unit
from repro.records.comparison import (
    ComparedBundle,
    ComparedMachines,
    ComparedRow,
    ComparedSpeedup,
    ComparedTime,
    ComparedWord,
    Comparison,
    MeasuredInNeither,
    OnlyIn,
    VerdictChange,
)

# A ratio within this share of 1 counts as SAME, also in the judge's words.
SAME = 0.01
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


@dataclass(frozen=True)
class Machines:
    """The differences between the machines of two rows. same_unit: both are known to be the same GPU."""

    differences: list[Difference]
    same_unit: bool


def compare(a: Measured, b: Measured) -> Comparison:
    """Return the comparison, for `--json` and tables.

    Speedups compare between any two measurements, times only if no hard field of the machines differs. Of a bundle that
    is not a measurement only verdicts are compared. Raises UsageError if the bundles are of different verbs.
    """
    if a.verb != b.verb:
        raise UsageError(f"{a.name} is of `{a.verb}` and {b.name} of `{b.verb}`", "they share no row")
    common = [key for key in a.records if key in b.records]
    pairs: dict[tuple[str, str], Machines] = {}
    for key in common:
        ids = (a.records[key].fingerprint, b.records[key].fingerprint)
        if ids not in pairs and all(i in side.fingerprints for i, side in zip(ids, (a, b), strict=True)):
            mine, theirs = a.fingerprints[ids[0]], b.fingerprints[ids[1]]
            pairs[ids] = Machines(differences(mine, theirs), same_unit(mine, theirs))
    rows = [_row(a.records[key], b.records[key], pairs) for key in common]
    measured = {key[0] for key in a.records.keys() | b.records.keys()}
    return Comparison(
        schema_version=1, a=_side(a), b=_side(b), rows=rows, only_a=_only(a, b), only_b=_only(b, a),
        verdict_changes=[VerdictChange(row=r.row, variant=r.variant, verdict=r.verdict, why=r.why)
                         for r in rows if r.verdict[0] != r.verdict[1]],
        unmeasured=[MeasuredInNeither(row=key, a=a.unmeasured.get(key, ABSENT), b=b.unmeasured.get(key, ABSENT))
                    for key in a.unmeasured | b.unmeasured if key not in measured],
        fingerprints=[ComparedMachines(a=ids[0], b=ids[1], same_unit=found.same_unit,
                                       differences=[d.to_json() for d in found.differences])
                      for ids, found in pairs.items()],
        caveats=_caveats(a, b, pairs, rows),
    )  # fmt: skip


def worse(comparison: Comparison) -> bool:
    """Return whether a solution that was correct in A is not correct in B."""
    return any(change.verdict[0] == "correct" for change in comparison.verdict_changes)


def _side(side: Measured) -> ComparedBundle:
    stacks = sorted({stack(side, record).label for record in side.records.values()})
    return ComparedBundle(
        bundle=side.name,
        verb=side.verb,
        status=side.status,
        started=side.started,
        size=side.parameters.get("size"),
        device=side.parameters.get("device"),
        stacks=stacks,
        machines={name: fingerprint.headline(value) for name, value in side.fingerprints.items()},
        measurement=not side.why_not,
        why_not=side.why_not,
    )


def _only(one: Measured, other: Measured) -> list[OnlyIn]:
    """Return the records that only one bundle has, with the other's reason if it planned the row."""
    return [
        OnlyIn(row=r.row, variant=r.variant, reason=other.unmeasured.get(key[0], ABSENT))
        for key, r in one.records.items()
        if key not in other.records
    ]


def _row(a: Record, b: Record, pairs: dict[tuple[str, str], Machines]) -> ComparedRow:
    why_not = _why_not(a, b)
    noise = math.hypot(a.noise, b.noise)
    speedups: dict[str, ComparedSpeedup] = {}
    time, reason = (None, why_not) if why_not else _time(a, b, noise, pairs.get((a.fingerprint, b.fingerprint)))
    for name, ours in a.speedups.items() if not why_not else ():
        if name in b.speedups:
            theirs = b.speedups[name]
            quotient = theirs.over(ours)
            best = {"baseline": [a.best, b.best]} if name == "best_same_class" else {}
            speedups[name] = ComparedSpeedup(
                a=ours.record(), b=theirs.record(), ratio=quotient.value, ci95=[quotient.low, quotient.high],
                word=_sure(word(quotient, noise), a.words.get(name), b.words.get(name)), **best,
            )  # fmt: skip
    return ComparedRow(
        row=a.row, variant=a.variant, problem=a.problem, verdict=[a.verdict, b.verdict], why=[a.why, b.why],
        speedup=speedups, time_ms=time, time_reason=reason, converged=[a.converged, b.converged],
    )  # fmt: skip


def _why_not(a: Record, b: Record) -> str:
    """Return why only the verdicts of two records compare, or ""."""
    for side, record in (("A", a), ("B", b)):
        if record.why_not:
            return f"{side}: {record.why_not}"
        if record.verdict not in ("", "correct"):
            return f"{side}: {record.verdict}; only correct solutions have a speed"
    return "" if a.problem == b.problem else f"A is of {a.problem}, B of {b.problem}: other sizes or another dtype"


def _sure(found: ComparedWord, *judged: str | None) -> ComparedWord:
    """Return AMBIGUOUS if the judge's own clock confirms no speedup, else `found`."""
    return "AMBIGUOUS" if "UNCONFIRMED" in judged else found


def _time(a: Record, b: Record, noise: float, found: Machines | None) -> tuple[ComparedTime | None, str]:
    """Return both times (ms), and how they compare, or why they do not.

    `ratio` is B over A: under 1, B is faster.
    """
    if a.time_ms is None or b.time_ms is None:
        sides = " and ".join(side for side, record in (("A", a), ("B", b)) if record.time_ms is None)
        return None, f"no time in {sides}"
    apart = ComparedTime(a=a.time_ms.record(), b=b.time_ms.record(), ratio=None, ci95=None, word=None)
    if found is None:
        return apart, "the machine is not recorded"
    hard = [f"{d.name} {d.a} and {d.b}" for d in found.differences if d.hard]
    if hard:
        return apart, f"NOT-COMPARABLE: {'; '.join(hard)}"
    quotient = b.time_ms.over(a.time_ms)
    faster = a.time_ms.over(b.time_ms)
    spread = 0.0 if found.same_unit else OTHER_GPU
    return ComparedTime(
        a=apart.a, b=apart.b, ratio=quotient.value, ci95=[quotient.low, quotient.high],
        word=word(faster, noise, spread),
    ), ""  # fmt: skip


def _caveats(a: Measured, b: Measured, pairs: dict[tuple[str, str], Machines], rows: list[ComparedRow]) -> list[str]:
    """Return what a reader must know beside the numbers, one sentence each."""
    told = [f"{side} ({m.name}) is no measurement: {m.why_not}; only verdicts are compared."
             for side, m in (("A", a), ("B", b)) if m.why_not]  # fmt: skip
    timed = not told
    told += [f"{side} ({m.name}) is {m.status}: not all of its rows were measured."
              for side, m in (("A", a), ("B", b)) if m.status != "complete"]  # fmt: skip
    every = {d.name: d for found in pairs.values() for d in found.differences}.values()
    hard = sorted({d.name for d in every if d.hard})
    if hard:
        told.append(f"The machines differ in {', '.join(hard)}: times are shown and not compared, speedups are.")
    elif timed and not all(found.same_unit for found in pairs.values()):
        told.append(
            f"Not known to be one GPU: two of one kind differ by up to {100 * OTHER_GPU:.0f} %, and a time that "
            "differs by less is AMBIGUOUS."
        )
    unknown = sorted({d.name for d in every if d.klass == "H" and not d.known})
    if unknown:
        told.append(f"Only one side recorded {', '.join(unknown)}: taken as equal.")
    configured = sorted({d.name for d in every if d.klass == "C"})
    if configured:
        told.append(f"Configuration differs ({', '.join(configured)}) and may account for part of a difference.")
    if timed and any(not all(row.converged) for row in rows):
        told.append("Rows marked * had not converged when the time budget ended: their intervals are wider.")
    return told
