"""The section of the judged sources: each with its verdict, its failing trials, and what the optimiser changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from repro.analysis.records import Source
from repro.artifacts import layout
from repro.records import wording
from repro.records.verdict import Verdict
from repro.report import artifacts, elements, sources
from repro.report.elements import Code, Section
from repro.report.sources import Solution

_CHARS = 40_000


def section(of: list[Source]) -> Section:
    """Every solution whose text the bundle keeps, negative controls left out."""
    codes = [code for source in of for each in sources.solutions(source) for code in _code(each, len(of) > 1)
             if not each.row.control and each.row.rounds is None]  # fmt: skip
    return elements.section("kernels", "Kernels", codes=codes, paper=False)


def _code(each: Solution, lettered: bool) -> Iterator[Code]:
    text = kept_text(each, each.verdict)
    if not text:
        return
    name = artifacts.KERNELS.get(each.verdict.solution, each.variant)
    title = f"{each.row.problem}, {name}" + (f" ({each.source.letter})" if lettered else "")
    reasons = [wording.reason(reason) for reason in each.verdict.reasons]
    yield Code(problem=each.row.problem, title=title, verdict=wording.word(each.verdict), reasons=reasons,
               text=text[:_CHARS], changes=_changes(each, text))  # fmt: skip


def kept_text(each: Solution, verdict: Verdict) -> str:
    """The text of the row's solution that has this verdict, or "" where the bundle does not keep it."""
    at = each.result.results.index(verdict)
    for given in each.row.inputs or []:
        if given.name == f"solution_{at}.py" and given.kept:
            return (each.source.bundle.read(given.kept) or b"").decode(errors="replace")
    return ""


def _changes(each: Solution, text: str) -> str:
    """What an optimised kernel of an artifact changed in its input kernel, as a unified difference."""
    given = [verdict for verdict in each.result.results if verdict.solution == "input_kernel"]
    if each.verdict.solution != "optimized" or not given:
        return ""
    before = kept_text(each, given[0])
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), layout.KERNELS["input_kernel"],
                                 layout.KERNELS["optimized"], n=2, lineterm="")  # fmt: skip
    return "\n".join(lines)[:_CHARS] if before else ""
