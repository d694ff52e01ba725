"""The section on right and wrong: verdicts with distances and margins, fixtures, the judge's own test, KernelBench's
protocol beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repro.analysis.records import Source
from repro.records import wording
from repro.records.fixture import FixtureRecord
from repro.records.verdict import CaseOutcome, KernelBenchVerdict, Verdict
from repro.records.where import Where
from repro.report import elements, sources
from repro.report.elements import Cell, Section, Table
from repro.report.sources import Solution
from repro.studies import self_test

_COLUMNS = ("problem", "solution", "bundle", ("verdict", "verdict"), ("class", "text", 3),
            ("rel L2", "scientific", 2), ("max", "scientific"), ("row", "scientific"), ("trials", "integer"),
            ("not finite", "integer"), ("margin", "quantity", 4), "allclose 1e-2", "allclose 1e-4", "KernelBench",
            "labels", "why")  # fmt: skip

_CASES = ("case", "bundle", "problem", "verdict", ("judged", "verdict"), "outcome", "reason")
_DTYPES = {"bf16": {"dtype": "bfloat16"}, "fp16": {"dtype": "float16"}}
_YES = {None: "", True: "yes", False: "no"}


def section(of: list[Source]) -> Section:
    """One line a solution; controls among them, and named so."""
    rows = [_line(each) for source in of for each in sources.solutions(source)]
    judged = [
        [case.case, letter, case.problem, wording.word(case), "; ".join(case.complaints) or "as expected",
         case.outcome, "; ".join(map(wording.reason, case.reasons[:1]))]
        for case, letter in cases(of)
    ]  # fmt: skip
    tables = [elements.table("correctness", "Verdicts, distances to the fp64 reference and margins", _COLUMNS, rows),
              elements.table("cases", "What the judge said of every case", _CASES, judged)]  # fmt: skip
    text = (
        "Distances are the worst over all trials: relative L2, largest element and largest row, each over the "
        "reference's root mean square. The margin is the best cheat's error over the worst honest kernel's, each as a "
        "multiple of its limit. allclose stands beside the verdict for comparison and decides nothing."
    )
    return elements.section("correctness", "Correctness", text=[text] if rows else [], tables=tables)


def _line(each: Solution) -> list[Cell]:
    verdict, legacy = each.verdict, each.verdict.legacy
    why = wording.why(verdict)
    calls = [one for of in verdict.distances.values() for one in of]
    if each.row.control:
        why = f"a negative control, which must be wrong: {why}"
    return [each.row.problem, each.variant, each.source.letter, wording.word(verdict), verdict.precision_class,
            *(max((getattr(one, name) for one in calls), default=None) for name in ("rel_l2", "max", "row")),
            len(calls), sum(math.isinf(one.rel_l2) for one in calls) or None,
            each.result.margin, *(_YES[legacy.get(f"allclose_{at}")] for at in ("1e-2", "1e-4")),
            kernelbench(verdict), ", ".join(verdict.labels), why]  # fmt: skip


_TRIALS = ("solution", "problem", "bundle", "input case", ("judged", "verdict"), ("calls", "integer", 3),
           *((name.replace("_", " "), "scientific") for name in wording.DISTANCES))  # fmt: skip


def trials(of: list[Source]) -> Section:
    """One line a solution and input case, simple cases first."""
    judged = [each for source in of if source.verb == "evaluate" for each in sources.solutions(source)]
    rows = [row for each in judged for row in _trials(each)]
    text = [line for each in judged for line in _said(each)]
    return elements.tabled("trials", "Trials", "Distances of every input case", _TRIALS, rows, text=text, paper=False)


def _said(each: Solution) -> list[str]:
    """What a wrong solution said, line by line, and the lines of Python that show its first wrong element again."""
    where = each.verdict.where
    if where is None:
        return []
    said = {
        "stopped in": where.trace.splitlines(),
        "printed": where.printed.splitlines(),
        "to see it again:": _again(each, where),
    }
    return [text for what, lines in said.items() if lines for text in (f"{each.variant} {what}", *lines)]


def _again(each: Solution, where: Where) -> list[str]:
    one = where.example
    if one is None:
        return []
    spec, _, dtype = each.verdict.problem.partition("@")
    words = each.source.bundle.manifest.get("argv") or []
    spec = next((b for a, b in itertools.pairwise(words) if a == "--problem" and Path(b).stem == spec), spec)
    name = each.row.file or each.verdict.solution
    file = next((word for word in words if word.endswith(name)), name)
    given = {"size": each.source.parameters.get("size") or "full"} | _DTYPES.get(dtype, {})
    given |= each.row.at.constants
    case = {"seed": one.seed} | {
        name: value for name, value in (("stress", one.stress), ("perturbed", one.perturbed)) if value
    }
    case |= {"device": "cuda"} if each.source.on_gpu else {}
    return ["import repro", f"problem = repro.problem({_call(spec, given)})",
            f"got, expected = problem.again({_call(file, case)})"]  # fmt: skip


def _call(first: str, named: dict[str, Any]) -> str:
    return ", ".join([repr(first), *(f"{name}={value!r}" for name, value in named.items())])


def _trials(each: Solution) -> Iterator[list[Cell]]:
    verdict = each.verdict
    wrong = {reason.trial for reason in verdict.reasons}
    for kind in sorted({*verdict.distances, *wrong} & wording.CASES.keys(), key=list(wording.CASES).index):
        calls = verdict.distances.get(kind, [])
        worst = (max((getattr(one, name) or 0.0 for one in calls), default=None) for name in wording.DISTANCES)
        yield [each.variant, each.row.problem, each.source.letter, wording.CASES[kind],
               "wrong" if kind in wrong else "ok", len(calls), *worst]  # fmt: skip


def measured(of: list[Source]) -> list[tuple[FixtureRecord, str]]:
    """Every measured fixture, with the letter of its bundle."""
    return [(row.result, source.letter) for source in of if source.verb == "fixtures" for row in source.done
            if isinstance(row.result, FixtureRecord)]  # fmt: skip


def cases(of: list[Source]) -> list[tuple[CaseOutcome, str]]:
    """Every case of the self-test, with the letter of its bundle."""
    return [(case, source.letter) for source in of if source.verb == "self-test"
            for case in self_test.outcomes(source.bundle)]  # fmt: skip


def fixtures(of: list[Source]) -> Table:
    """One line a fixture, the smallest margin first."""
    rows = [
        [fixture.problem, letter, f"refused: {fixture.refused}" if fixture.refused else "usable", fixture.margin,
         fixture.best_cheat, fixture.build_s, len(fixture.trials)]
        for fixture, letter in sorted(measured(of), key=lambda pair: pair[0].margin)
    ]  # fmt: skip
    columns = ["problem", "bundle", ("verdict", "verdict"), ("margin", "quantity", 0), ("best cheat", "text", 1),
               ("seconds", "seconds", 2), ("input cases", "integer", 4)]  # fmt: skip
    return elements.table("fixtures", "Fixtures: what separates honest kernels from cheats", columns, rows)


# -- KernelBench's own protocol beside the judge's

# Thresholds of fast_p: the share of all solutions that are correct and more than p times as fast as eager.
_FAST = (0, 1, 2)


def kernelbench(verdict: Verdict) -> str | None:
    """What KernelBench's protocol says of one solution, as `correct 1.20x`; None where it was not asked for."""
    theirs = verdict.kernelbench
    if not theirs:
        return None
    if theirs.correct is None:
        return "not run"
    speedup = f" {theirs.speedup:.2f}x" if theirs.measurement and theirs.speedup else ""
    return ("correct" if theirs.correct else "wrong") + speedup


def _both(verdicts: Sequence[Verdict]) -> list[tuple[KernelBenchVerdict, Verdict]]:
    """The solutions that both protocols were asked for."""
    return [(verdict.kernelbench, verdict) for verdict in verdicts if verdict.kernelbench]


def fast(verdicts: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """fast_p of the solutions that both protocols were asked for: {"kernelbench", "judge"} -> p -> share; {} for none.

    Above 0 only where times are measurements. A speedup that the judge's clock cannot confirm counts as 1.
    """
    both = _both(verdicts)
    ps = _FAST if all(theirs.measurement for theirs, _ in both) else _FAST[:1]
    # speedup of each, 0 without one, less where it is wrong
    speeds = {
        "kernelbench": [theirs.speedup or 0.0 if theirs.correct else -1.0 for theirs, _ in both],
        "judge": [_speed(ours) if ours.verdict == "correct" else -1.0 for _, ours in both],
    }
    return {by: {str(p): sum(one > p or one == p == 0 for one in of) / len(of) for p in ps}
            for by, of in speeds.items() if of}  # fmt: skip


def _speed(verdict: Verdict) -> float:
    eager = verdict.speedup.get("eager")
    return eager.counted.ratio if eager else 0.0


def sentence(verdicts: Sequence[Verdict]) -> str:
    """One line on both protocols: fast_p, and where their verdicts differ; "" where KernelBench's was not asked for."""
    names = {"kernelbench": "by KernelBench's protocol", "judge": "by the judge"}
    listed = "; ".join(f"{names[by]}: " + ", ".join(f"fast_{p} {share:.2f}" for p, share in shares.items())
                       for by, shares in fast(verdicts).items())  # fmt: skip
    both = _both(verdicts)
    differ = sum(bool(theirs.correct) != (ours.verdict == "correct") for theirs, ours in both)
    return f"{listed}; verdicts differ on {differ} of {len(both)}" if both else ""
