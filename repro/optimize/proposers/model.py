"""The proposer `model`: a language model analyses a program, rewrites it, mends what failed, and reflects on it.

One analysis of a program names distinct directions, and each candidate takes one. What was asked before is read from
the state: replies lie in the transcripts of candidates.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jinja2

from repro.optimize.calls import DIRECTIONS, REFLEXION, Calls, Direction, NoAnswer, Unreadable, kernel_of, parsed
from repro.optimize.export import lineage
from repro.optimize.state import DUPLICATE, NOT_JUDGED, Program, State
from repro.problems.catalogue import Problem
from repro.records.search import Proposal, Proposed
from repro.system import jsonio

ANALYSE_PROMPT, ANALYSE_REPLY = "bottleneck_prompt.txt", "bottleneck_response.txt"
REWRITE_PROMPT, REWRITE_REPLY, REFLEXION_FILE = "opt_prompt.txt", "opt_reply.txt", "reflexion.txt"
# How often a candidate that failed is mended.
REPAIRS = 2
# Programs of other branches that a prompt shows, and the last attempts of this one.
OTHERS, ATTEMPTS = 2, 5
LONGEST_DIFF_LINES = 200
Question = tuple[str, Callable[[], Proposal | None]]


@functools.cache
def templates() -> jinja2.Environment:
    """Return the prompts of this package."""
    loader = jinja2.PackageLoader("repro.optimize", "prompts")
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701


class Model:
    """See the module."""

    name, waits = "model", False

    def __init__(self, problem: Problem, calls: Calls) -> None:
        self.problem, self.model = problem, calls
        self.reflexions: dict[str, str] = {}
        self._final = False
        self._given_up: set[tuple[int, str]] = set()  # of this process: questions without an answer

    def propose(self, state: State, count: int) -> Proposed:
        """See Proposer.propose. A question without an answer costs its candidate, and the run goes on."""
        self.reflexions, failed = {}, ""
        found: list[Proposal] = []
        limit = self.model.usd
        if limit is not None and state.spent["usd"] >= limit:
            return Proposed(spent=self.model.spent, failed=f"the budget of {limit:g} usd is used up")
        for about, question in [*self._mends(state), *self._new(state)]:
            key = (state.round, about)
            if len(found) >= count or self._final:
                break
            if key in self._given_up:
                continue
            try:
                made = question()
            except NoAnswer as error:
                failed, self._final = str(error), error.final
                self._given_up.add(key)
            else:
                found += [made] if made is not None else []
        return Proposed(proposals=found, spent=self.model.spent, calls=self.model.take(), reflexions=self.reflexions,
                        failed=failed)  # fmt: skip

    # -- what to ask

    def _mends(self, state: State) -> Iterator[Question]:
        """Yield a question for each candidate of this round that failed and may be mended."""
        own = [p for p in state.programs.values() if p.proposer == self.name and p.round == state.round]
        mended = {p.mends for p in own}
        for p in own:
            failed = not p.passed and p.verdict not in (DUPLICATE, NOT_JUDGED)
            if failed and p.id not in mended and _depth(state, p) < REPAIRS:
                yield f"mend {p.id}", functools.partial(self._mend, state, p)

    def _new(self, state: State) -> Iterator[Question]:
        """Yield a question for each direction that this round still takes of the beam's programs."""
        self._plans: dict[str, tuple[list[Direction], str, str]] = {}
        for name in state.beam:
            made = [p for p in state.of(name) if p.proposer == self.name and not p.mends and p.round == state.round]
            for at in range(state.options.directions - len(made)):
                about = f"rewrite {name} {len(made) + at}"
                yield about, functools.partial(self._rewrite, state, state.programs[name], at)

    def _rewrite(self, state: State, parent: Program, at: int) -> Proposal | None:
        self._reflect(state, parent)
        if parent.id not in self._plans:
            self._plans[parent.id] = self._analysis(state, parent)
        plans, prompt, reply = self._plans[parent.id]
        if at >= len(plans):
            return None
        direction = plans[at]
        asked = self._render("rewrite", state, parent, direction=direction, entry=parent.entry)
        text, said = self.model.ask(f"rewrite {parent.id}: {direction.summary}", asked, kernel_of)
        transcript = {ANALYSE_PROMPT: prompt, ANALYSE_REPLY: reply, REWRITE_PROMPT: asked, REWRITE_REPLY: said}
        return Proposal(text, parent.entry, parent.id, slug(direction.summary), "P", {}, direction.fix, transcript)

    def _mend(self, state: State, failed: Program) -> Proposal | None:
        parent = state.programs[failed.parent_id]
        direction = next((d for d in _directions(failed) if slug(d.summary) == failed.strategy), None)
        if direction is None:
            return None
        asked = self._render("repair", state, parent, direction=direction, entry=failed.entry, failed=failed,
                             rewritten=state.source(failed.id))  # fmt: skip
        text, said = self.model.ask(f"repair {failed.id}: {direction.summary}", asked, kernel_of)
        transcript = failed.transcript | {REWRITE_PROMPT: asked, REWRITE_REPLY: said}
        transcript.pop(REFLEXION_FILE, None)
        return Proposal(text, failed.entry, parent.id, failed.strategy, "P", {}, failed.why, transcript, failed.id)

    def _analysis(self, state: State, parent: Program) -> tuple[list[Direction], str, str]:
        """Return the directions of a program that were not tried, and the prompt and reply that named them."""
        tried = {p.strategy for p in state.of(parent.id)}
        for child in reversed(state.of(parent.id)):
            left = [d for d in _directions(child) if slug(d.summary) not in tried]
            if left:
                return left, child.transcript[ANALYSE_PROMPT], child.transcript[ANALYSE_REPLY]

        def read(text: str) -> list[Direction]:
            found = {slug(d.summary): d for d in parsed(text, DIRECTIONS)}
            new = [d for name, d in found.items() if name not in tried]
            if not new:
                raise Unreadable("it names no direction that was not tried")
            return new

        count = state.options.directions
        asked = self._render("analyse", state, parent, count=count)
        plans, reply = self.model.ask(f"analyse {parent.id}", asked, read)
        return plans, asked, reply

    def _reflect(self, state: State, parent: Program) -> None:
        """Reflect on judged candidates of the model around a program: itself, and what was made of it."""
        for child in (parent, *state.of(parent.id)):
            due = child.proposer == self.name and child.verdict not in (NOT_JUDGED, DUPLICATE)
            if not due or child.round == state.round or REFLEXION_FILE in child.transcript:
                continue
            before = state.programs[child.parent_id]
            asked = templates().get_template("reflect.md.j2").render(
                child=child, parent=before, diff=diff(state, child))  # fmt: skip
            value, _ = self.model.ask(f"reflect {child.id}", asked, lambda text: parsed(text, REFLEXION))
            child.transcript[REFLEXION_FILE] = self.reflexions[child.id] = jsonio.render(value.model_dump()).decode()

    # -- prompts

    def _render(self, name: str, state: State, parent: Program, **more: Any) -> str:
        diagnosis = state.diagnoses.get(parent.id)
        line = [state.programs[name] for name in reversed(lineage(state, parent.id))]
        others = sorted((p for p in state.programs.values() if p.accepted and p not in line),
                        key=lambda p: -p.ratio)[:OTHERS]  # fmt: skip
        tried = [p for p in state.of(parent.id) if p.verdict not in (NOT_JUDGED, DUPLICATE)][-ATTEMPTS:]
        return templates().get_template(f"{name}.md.j2").render(
            problem=self.problem.path.read_text(), dtype=state.options.dtype, parent=parent, ratio=parent.ratio,
            profile=diagnosis.sentence() if diagnosis else "none", floor_ms=parent.floor_ms,
            measured=state.options.device == "cuda", source=state.source(parent.id), diff=diff(state, parent),
            lineage=[_told(p) for p in line], others=[_told(p) for p in others], tried=[_told(p) for p in tried],
            **more,
        )  # fmt: skip


def diff(state: State, program: Program) -> str:
    """Return the changes of a program against its parent, as a unified diff; "" for the input kernel."""
    if not program.parent:
        return ""
    before, after = (state.source(name).splitlines() for name in (program.parent, program.id))
    lines = list(difflib.unified_diff(before, after, program.parent, program.id, n=1, lineterm=""))
    return "\n".join(lines[:LONGEST_DIFF_LINES])


def slug(text: str) -> str:
    """Return a direction's name: a few words of its summary."""
    return "_".join(re.findall(r"[a-z0-9]+", text.lower())[:6]) or "direction"


def _directions(program: Program) -> list[Direction]:
    try:
        return parsed(program.transcript.get(ANALYSE_REPLY, ""), DIRECTIONS)
    except Unreadable:
        return []


def _depth(state: State, program: Program) -> int:
    depth = 0
    while program.mends:
        depth, program = depth + 1, state.programs[program.mends]
    return depth


def _told(program: Program) -> dict[str, str]:
    """Return what a prompt says of a program."""
    time = f"{program.time_ms:.4g} ms" if program.time_ms else program.verdict
    gain = f", {program.ratio:.2f} times as fast as the input kernel" if program.gain and program.parent else ""
    why = f" ({program.reason})" if program.reason else ""
    lesson = ""
    if REFLEXION_FILE in program.transcript:
        lesson = "; ".join(parsed(program.transcript[REFLEXION_FILE], REFLEXION).lessons)
    return {"id": program.id, "strategy": program.strategy, "told": f"{time}{gain}{why}", "lesson": lesson}
