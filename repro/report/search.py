"""A search's report: the tree of its candidates as a figure whose points say what they are, and a table of them.

It is drawn from a run that was replayed, so it holds what the journal holds.
"""

from __future__ import annotations

from repro.errors import UsageError
from repro.optimize.export import running_best
from repro.optimize.proposers.model import diff
from repro.optimize.runner import Finished
from repro.optimize.state import INPUT, NO_WINNER, Program, State
from repro.report import elements, figures
from repro.report.document import SCHEMA_VERSION, Document
from repro.report.elements import Banner, Candidate, Cell, Figure, Tree
from repro.report.summary import Headline

_NOT_MEASURED = "Times are of a CPU and are not a measurement."
_COLUMNS = ("program", "made of", "by", "change", "verdict", ("ms", "ms"), "gain", "why")
_LONGEST_DIFF = 1200


def document(finished: Finished) -> Document:
    """Return the document of a search."""
    state = finished.state
    best = state.winner
    gain = f"{best.ratio:.2f}x the input kernel" if best.accepted else "no faster kernel was found"
    gain = gain if finished.measured else NO_WINNER
    title = f"Search from the input kernel of {state.options.problem}"
    correct = sum(p.correct for p in state.programs.values())
    banners = [] if finished.measured else [Banner(kind="warning", text=_NOT_MEASURED)]
    cards = [
        elements.card("best", f"{best.time_ms:.4g} ms" if best.time_ms else "", gain),
        elements.card("programs", str(len(state.programs)), f"{correct} correct"),
        elements.card("rounds", str(state.round), finished.stopped),
    ]
    if state.spent["tokens"]:
        cards.append(elements.card("spent", f"{state.spent['usd']:.2f} USD", f"{state.spent['tokens']:.0f} tokens"))
    text = [
        "A point is a candidate that was timed; a line leads to it from its parent. The step line is the best so "
        "far. Blue was accepted, green is the best, orange was slower or only screened. Hold the pointer over a "
        "point for its change, verdict, time and reason."
    ]
    timed = sum(bool(program.time_ms) for program in state.programs.values())
    alt = f"Time of {timed} candidates over {state.round} rounds; the best is {best.id}: {gain}"
    trees = [Figure(id="search-tree", title=title, alt=alt, data=tree)
             for tree in [_tree(finished)] if tree.points]  # fmt: skip
    rows = [_row(p) for p in state.programs.values()]
    section = elements.section("search", "Candidates", text=text, figures=trees, opened=True,
                               tables=[elements.table("candidates", "Every candidate", _COLUMNS, rows)])  # fmt: skip
    return Document(
        schema_version=SCHEMA_VERSION, title=title, headline=Headline(parts=[gain, finished.stopped]),
        banners=banners, cards=cards, sections=[section], sources=[], verdicts=[], claims=None,
    )  # fmt: skip


def _tree(finished: Finished) -> Tree:
    state = finished.state
    points = [
        Candidate(
            id=program.id, parent=program.parent, round=program.round, time_ms=program.time_ms,
            accepted=program.accepted or program.id == INPUT, best=program.id == state.best,
            full=program.gain is not None, text=spoken(state, program),
        )
        for program in state.programs.values() if program.time_ms
    ]  # fmt: skip
    return Tree(points=points, stamp=not finished.measured, best=running_best(state))


def spoken(state: State, program: Program) -> str:
    """Return what a point says: change, verdict, time with its interval, reason and the difference in the code."""
    lines = [f"{program.id}: {program.strategy} {program.params or ''}".rstrip(), program.why,
             f"{program.verdict}, {program.time_ms:.4g} ms" if program.time_ms else program.verdict]  # fmt: skip
    if program.gain:
        low, high = program.gain.ci95
        lines.append(f"{program.ratio:.2f}x the input kernel [{low:.2f}, {high:.2f}]")
    lines += [program.reason, diff(state, program)[:_LONGEST_DIFF]]
    return "\n".join(filter(None, lines))


def drawn(finished: Finished, suffix: str) -> str:
    """Return a page (.html) or its figure (.svg). Raises PrerequisiteError without jinja2."""
    from repro.report import page

    return svg(finished) if suffix == ".svg" else page.render(document(finished))


def svg(finished: Finished) -> str:
    """Return the figure alone. Only a page has room for differences of the code, and for texts of screened candidates.

    Raises UsageError if no program was timed.
    """
    tree = _tree(finished)
    for figure in document(finished).sections[0].figures:
        points = [p.model_copy(update={"text": p.text.partition("\n--- ")[0] * p.full}) for p in tree.points]
        return figures.svg(figure.model_copy(update={"data": tree.model_copy(update={"points": points})})) + "\n"
    raise UsageError("there is no figure: no program of this search was timed", "", "Name a page: -o FILE.html")


def _row(program: Program) -> list[Cell]:
    gain = f"{program.ratio:.2f}x" if program.gain and program.parent else ""
    return [program.id, program.parent or "", program.proposer, program.strategy, program.verdict, program.time_ms,
            gain, program.reason or program.why]  # fmt: skip
