"""The search: rounds of proposals, screening, a contest in full, and the choice of the next beam.

Every decision follows from the options and from what the journal holds, so a replay makes the same ones.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from repro.optimize import judging, rewrites, roofline
from repro.optimize.journal import SCHEMA_VERSION, Branch, Journal
from repro.optimize.judging import EngineJudge
from repro.optimize.kernel_source import KernelSource, ast_hash, refusal
from repro.optimize.proposers.base import Proposer
from repro.optimize.state import DUPLICATE, INPUT, REFUSED, SCREENED, STAMP, Program, State
from repro.problems.catalogue import Work
from repro.records import search
from repro.records.profile import Counters
from repro.records.search import AllJudged, Contest, Gain, Judged, Options, Proposal, Proposed
from repro.records.session import CheckTier, Opened
from repro.runs.progress import Progress
from repro.studies.evaluation import Submission
from repro.system.digest import sha256

# How often a folder is looked at while nothing else is left to do.
POLL_S = 1.0
# A bound on one request for candidates, for each GPU: between two, screening results reach the proposers.
ASKED = 10
# Labels of a source that lets torch do the work. A candidate may have those of the input kernel, and no others.
FOREIGN = {"no_custom_kernel", "torch_fallback", "torch_compile", "exception_fallback", "inherits_model"}

OUT_OF_TIME, EXHAUSTED = "the time is used up", "nothing is left to expand"
T = TypeVar("T")


@dataclass
class Search:
    """One run. source, entry: of the input kernel. judge: called once something must be judged for real, never in a
    replay."""

    options: Options
    source: str
    entry: str
    journal: Journal
    judge: Callable[[], EngineJudge]
    proposers: list[Proposer]
    view: Progress
    work: Work | None = None
    counters: Counters | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.state = State(self.options)
        self.opened = Opened()
        self.baselines_ms: dict[str, float] = {}
        self.measured, self._without_gain, self._began = False, 0, self.clock()
        self._foreign: set[str] = set()
        # The kernel that gains are over: the input kernel, or its mended copy where that is refused.
        self._base = INPUT
        self._exhausted, self.stopped, self._failed = False, "", ""

    # -- the run

    def run(self) -> State:
        """Search until a budget, the floor, or nothing is left; return the state. Raises ReproError."""
        self.journal.note("start", {"schema_version": SCHEMA_VERSION} | vars(self.options) | {"entry": self.entry})
        self.journal.keep(self.source)
        self.opened = self.journal.effect("opened", {}, search.OPENED, lambda: self.judge().opened)
        self._add(Proposal(self.source, self.entry, "", "input kernel", why="the kernel to start from"), "", INPUT)
        self.stopped = self._begin()
        while not self.stopped:
            self.state.round += 1
            self._round()
            self.stopped = self._stop()
        end = search.Stopped(why=self.stopped, best=self.state.best, rounds=self.state.round)
        self.journal.note("stopped", end.to_json())
        self.view.say(f"stopped: {self.stopped}")
        return self.state

    def _begin(self) -> str:
        """Judge and time the input kernel. Return why the search cannot begin, or ""."""
        self.view.step("judging the input kernel")
        first = self.state.programs[INPUT]
        self._verdict(first, self._check([first]))
        if not first.correct and not self._mend(first):
            return f"the input kernel is not correct: {first.reason}"
        base = self.state.winner
        self._settle([([base], self._time([base], "full"))])
        if base.time_ms is None:
            return f"the input kernel could not be timed: {base.reason}"
        self.view.say(f"input kernel: correct, {base.time_ms:.4g} ms{self._stamp()}")
        return ""

    def _mend(self, first: Program) -> bool:
        """Give an input kernel that writes into its input an output of its own; it becomes the kernel to start from."""
        text = rewrites.BY_NAME["own_output"].attempt(KernelSource(self.source))
        if text is None:
            return False
        found = self._add(Proposal(text, self.entry, INPUT, "own_output", why="the input kernel is refused"), "search")
        self._verdict(found, self._check([found]))
        if found.correct:
            self.state.best = self._base = found.id
            found.accepted = True
        return found.correct

    def _round(self) -> None:
        state = self.state
        self._choose_beam()
        pool: list[Program] = []
        while len(pool) < state.options.screen and not self._late():
            batch = self._propose(min(ASKED * self.opened.sessions, state.options.screen - len(pool)))
            if not batch:
                break
            pool += batch
            self._screen(batch)
        self._exhausted = not pool
        chosen = self._finalists(pool)
        before = state.best
        if chosen:
            self._final_round(chosen)
        gained = state.best != before
        self._without_gain = 0 if gained else self._without_gain + 1
        best = state.winner
        selected = search.Selected(
            round=state.round, proposed=len(pool), finalists=[p.id for p in chosen], best=best.id, best_ms=best.time_ms,
            gain=best.gain, accepted=[p.id for p in chosen if p.accepted],
        )  # fmt: skip
        self.journal.note("selected", selected.to_json())
        for program in (p for p in pool if p.proposer == "inbox"):
            verdict = f"{program.verdict}: {program.reason}" if program.reason else program.verdict
            self.view.say(f"{program.why}: {program.id}, {verdict}")
        self.view.say(self._line(len(pool), chosen, gained))

    def _choose_beam(self) -> None:
        state = self.state
        state.beam = state.choose_beam()
        for name in state.beam:
            if name not in state.diagnoses:
                program, counters = state.programs[name], self.counters if name == INPUT else None
                state.diagnoses[name] = roofline.diagnose(
                    self.work, state.options.dtype, program.time_ms, program.floor_ms, self.opened.ceilings, counters
                )
        bounds = {name: state.diagnoses[name] for name in state.beam}
        self.journal.note("round", search.Round(round=state.round, beam=state.beam, diagnoses=bounds).to_json())
        for name, diagnosis in bounds.items():
            self.view.step(f"round {state.round}: {name} is {diagnosis.sentence()}")

    def _stop(self) -> str:
        """Return why the search ends after this round, or ""."""
        options, best = self.options, self.state.winner
        if best.floor_ms and best.time_ms and best.floor_ms / best.time_ms >= roofline.REACHED:
            return f"the floor is reached: {best.floor_ms / best.time_ms:.0%} of it"
        if self._late():
            return f"{OUT_OF_TIME}: {options.minutes:g} min"
        if options.usd is not None and self.state.spent["usd"] >= options.usd and options.proposers == ("model",):
            return f"the budget of {options.usd:g} usd is used up"
        if self.state.round >= options.rounds:
            return f"{options.rounds} round{'s are' if options.rounds > 1 else ' is'} done"
        if self._exhausted:
            return EXHAUSTED + (f" ({self._failed})" if self._failed else "")
        if self._without_gain >= options.patience:
            return f"no gain in {options.patience} rounds"
        return ""

    def _late(self) -> bool:
        minutes = self.options.minutes
        if minutes is None:
            return False
        replays = self.journal.replays
        elapsed = self.journal.effect("clock", {}, search.CLOCK, lambda: round(self.clock() - self._began, 3))
        if replays:  # a resumed run goes on from there
            self._began = self.clock() - elapsed
        return elapsed >= 60 * minutes

    # -- candidates

    def _propose(self, count: int) -> list[Program]:
        """Return new programs of all proposers; wait while a proposer may still get some."""
        while True:
            found: list[Program] = []
            for at, proposer in enumerate(self.proposers):
                share = -(-(count - len(found)) // (len(self.proposers) - at))
                found += self._asked(proposer, share)
            if found or not any(p.waits for p in self.proposers) or self._late():
                return found
            self.view.step("waiting for candidates in the inbox")
            if not self.journal.replays:
                self.sleep(POLL_S)

    def _asked(self, proposer: Proposer, count: int) -> list[Program]:
        def perform() -> Proposed:
            self.view.step(f"round {self.state.round}: {proposer.name} proposes")
            made = proposer.propose(self.state, count)
            kept = [replace(p, source=self.journal.keep(p.source)) for p in made.proposals]
            return made.model_copy(update={"proposals": kept})

        if count <= 0:
            return []
        request = {"proposer": proposer.name, "round": self.state.round, "count": count}
        told = self.journal.effect("proposed", request, search.PROPOSED, perform)
        if told.spent:
            self.state.spent = told.spent
        for name, text in told.reflexions.items():
            self.state.programs[name].transcript["reflexion.txt"] = text
        self._failed = told.failed or self._failed
        return [self._add(replace(p, source=self.journal.kernel(p.source)), proposer.name) for p in told.proposals]

    def _add(self, proposal: Proposal, proposer: str, name: str = "") -> Program:
        """Enter a candidate as a program; one that is known or may not be judged gets that verdict at once."""
        state = self.state
        number = sum(p.round == state.round for p in state.programs.values()) + 1
        address, tree = sha256(proposal.source), ast_hash(proposal.source)
        twin = state.known(address, tree)
        program = Program(
            name or f"r{state.round}.c{number:02d}", address, tree, proposal.entry, proposal.parent or None, proposer,
            proposal.strategy, proposal.kind, proposal.params, proposal.why, state.round,
            transcript=proposal.transcript, mends=proposal.mends,
        )  # fmt: skip
        if twin is not None:
            program.verdict, program.reason = DUPLICATE, f"the same program as {twin.id}"
        elif why := refusal(proposal.source):
            program.verdict, program.reason = REFUSED, why
        state.programs[program.id] = program
        state.sources[address] = proposal.source
        return program

    # -- judging

    def _submission(self, program: Program) -> Submission:
        return Submission(program.id, self.state.sources[program.address].encode(), program.entry)

    def _check(self, programs: list[Program], tier: CheckTier = "full", keep: Sequence[str] = ()) -> AllJudged:
        request = {"tier": tier, "programs": {p.id: p.address for p in programs}, "keep": list(keep)}
        submissions = [self._submission(p) for p in programs]
        return self.journal.effect(
            "checked", request, search.CHECKED, lambda: judging.check(self.judge(), submissions, tier, keep),
            lambda: self.judge().spent_s,
        )  # fmt: skip

    def _time(self, programs: list[Program], tier: CheckTier) -> Contest:
        request = {"tier": tier, "programs": {p.id: p.address for p in programs}}
        return self.journal.effect(
            "timed", request, search.CONTEST,
            lambda: judging.time(self.judge(), [self._submission(p) for p in programs], tier),
            lambda: self.judge().spent_s,
        )  # fmt: skip

    def _verdict(self, program: Program, told: AllJudged, right: str = "correct") -> None:
        """Take a program's verdict; one that is correct becomes `right`."""
        entry = told.get(program.id) or Judged(verdict="error", reasons=["the judge gave no verdict"])
        program.verdict = right if entry.verdict == "correct" else entry.verdict
        program.reason = "; ".join(entry.reasons)
        labels = FOREIGN & set(entry.labels)
        if program.id == INPUT:
            self._foreign = labels
        elif program.passed and (more := sorted(labels - self._foreign)):
            program.verdict, program.reason = REFUSED, f"it is no kernel of the input's kind: {', '.join(more)}"

    def _screen(self, batch: list[Program]) -> None:
        """Screen candidates: on several GPUs an equal share each."""
        new = [p for p in batch if p.verdict not in (DUPLICATE, REFUSED)]
        room, sessions = self.opened.room - len({p.parent for p in new}), self.opened.sessions
        size = max(1, min(room, -(-len(new) // sessions)))
        self._spread(new, size, Search._share)

    def _spread(self, programs: list[Program], size: int, work: Callable[..., T]) -> list[T]:
        """Do a work for each share of programs, on several GPUs at once; its lines of the journal stand together."""
        shares, found = [programs[start : start + size] for start in range(0, len(programs), size)], []
        while shares:
            at_once = self.opened.sessions if self.journal.asks else 1
            some, shares = shares[:at_once], shares[at_once:]
            if len(some) == 1:
                found.append(work(self, *some))
            else:
                for branch, told in self.judge().all([partial(self._aside, work, share) for share in some]):
                    self.journal.join(branch)
                    found.append(told)
        return found

    def _aside(self, work: Callable[..., T], share: list[Program], judge: EngineJudge) -> tuple[Branch, T]:
        """Do a work by one judge, beside others; return also the lines of the journal."""
        aside, branch = copy.copy(self), Branch(self.journal)
        aside.journal, aside.judge = branch, lambda: judge
        return branch, work(aside, share)

    def _share(self, share: list[Program]) -> None:
        """Check candidates, compare exact ones with their parents, and time the rest beside their parents, quickly."""
        state = self.state
        parents = [state.programs[name] for name in dict.fromkeys(p.parent_id for p in share)]
        of = ", ".join(p.id for p in parents)
        self.view.step(f"round {state.round}: screening {len(share)} candidates of {of}")
        judged = self._check([*parents, *share], "screen")
        self._equal_bits(share, judged)
        right = [p for p in parents if p.id in judged and judged[p.id].verdict == "correct"]
        timed = [p for p in share if p.passed and state.programs[p.parent_id] in right]
        if not timed:
            return
        contest = self._time([*right, *timed], "screen")
        for program in timed:
            gain = judging.ratio(contest, program.parent_id, program.id)
            program.quick = gain.ratio if gain else None
            self._timed(program, contest)

    def _equal_bits(self, programs: list[Program], judged: AllJudged) -> None:
        """Take verdicts of a screening. A candidate of an exact rewrite must have its parent's outputs."""
        for program in programs:
            self._verdict(program, judged, SCREENED)
            parent = program.parent_id
            if program.passed and program.kind == "E" and not judging.equal_outputs(judged, parent, program.id):
                program.verdict, program.reason = REFUSED, f"its outputs are not those of {parent}, bit for bit"

    def _timed(self, program: Program, contest: Contest) -> None:
        """Take a program's time and what timing found wrong with it."""
        entry = contest.programs.get(program.id)
        if entry is None:
            return
        if entry.verdict != "correct":
            program.verdict, program.reason, program.quick = entry.verdict, "; ".join(entry.reasons), None
        if entry.time_ms:
            program.time_ms, program.floor_ms = entry.time_ms.median, entry.floor_ms

    def _finalists(self, pool: list[Program]) -> list[Program]:
        """Return the candidates that are judged in full: the fastest by their parent's speedup times their own."""
        good = [p for p in pool if p.passed and p.quick]

        def expected(program: Program) -> float:
            return (self.state.programs[program.parent_id].ratio or 1.0) * (program.quick or 0.0)

        return sorted(good, key=expected, reverse=True)[: self.options.finalists]

    def _final_round(self, chosen: list[Program]) -> None:
        """Time finalists in full beside their parents and the best, and accept those whose interval excludes 1.

        Each GPU takes some of them; all ratios are of one contest.
        """
        state = self.state
        self.view.step(f"round {state.round}: {len(chosen)} finalists in full")
        size = -(-len(chosen) // self.opened.sessions)
        contests = list(filter(None, self._spread(chosen, size, Search._judged_in_full)))
        self._settle(contests)
        held = {program.id: contest for programs, contest in contests for program in programs}
        for program in chosen:
            program.accepted = program.id in held and program.correct and _gains(program.better)
        best, good = state.winner, chosen
        if not best.correct:  # a contest rejected it, so the best of those that are right takes its place
            good = [p for p in state.programs.values() if p.correct and p.accepted]
            known = (p for p in good if _gains(p.gain))
            best = max(known, key=lambda p: p.ratio, default=state.programs[self._base])
        found = {p.id: judging.ratio(held[p.id], best.id, p.id) for p in good if p.accepted and p.id in held}
        faster = {name: gain.ratio for name, gain in found.items() if gain and _gains(gain)}
        state.best = max(faster, key=faster.__getitem__, default=best.id)

    def _judged_in_full(self, share: list[Program]) -> tuple[list[Program], Contest] | None:
        """Judge finalists beside their rivals; return those in the contest and its times, None if none is right."""
        rivals = dict.fromkeys([self._base, self.state.best, *(p.parent_id for p in share)])
        others = [self.state.programs[name] for name in rivals]
        judged = self._check([*others, *share], keep=[p.id for p in others])
        for program in share:
            self._verdict(program, judged)
        programs = [*others, *(p for p in share if p.correct)]
        return (programs, self._time(programs, "full")) if len(programs) > len(others) else None

    def _settle(self, contests: list[tuple[list[Program], Contest]]) -> None:
        """Take the times of full contests, with the programs of each."""
        base = self._base
        for programs, contest in contests:
            self.baselines_ms = contest.baselines_ms or self.baselines_ms
            self.measured = all(each.measurement for each in contest.programs.values())
            for program in programs:
                known = program.id == base and program.time_ms is not None
                if not known or contest.programs[base].time_ms:  # no contest takes the input kernel's verdict
                    self._timed(program, contest)
                if program.round == self.state.round or program.id == base:
                    program.gain = self._gain(contest, base, program, programs)
                    program.better = judging.ratio(contest, program.parent_id, program.id)

    def _gain(self, contest: Contest, base: str, program: Program, programs: list[Program]) -> Gain | None:
        """Return a program's speedup over the input kernel: measured, or through a program with a known one.

        The latter where the input kernel got no time in this contest. Its interval is the product of both.
        """
        found = judging.ratio(contest, base, program.id)
        for rival in programs if found is None else ():
            step = judging.ratio(contest, rival.id, program.id)
            if rival.gain and rival.id != program.id and step is not None:
                bounds = [a * b for a, b in zip(rival.gain.ci95, step.ci95, strict=True)]
                return Gain(ratio=rival.gain.ratio * step.ratio, ci95=bounds, n=step.n)
        return found

    # -- words

    def _stamp(self) -> str:
        return "" if self.measured else STAMP

    def _line(self, proposed: int, chosen: list[Program], gained: bool) -> str:
        state, best = self.state, self.state.winner
        passed = sum(p.passed for p in state.programs.values() if p.round == state.round)
        words = [f"round {state.round}: {proposed} proposed, {passed} right in one trial, {len(chosen)} in full"]
        low, high = best.gain.ci95 if best.gain else (1.0, 1.0)
        told = f"best {best.id} {best.time_ms:.4g} ms, {best.ratio or 1.0:.2f}x the input [{low:.2f}, {high:.2f}]"
        words.append(told + ("" if gained else ", no gain") + self._stamp())
        if best.floor_ms and best.time_ms:
            words.append(f"{best.floor_ms / best.time_ms:.0%} of the floor")
        if state.spent["tokens"]:
            words.append(f"{state.spent['usd']:.2f} USD, {state.spent['tokens']:.0f} tokens")
        return "; ".join(words)


def _gains(gain: Gain | None) -> bool:
    """Return whether a speedup is above 1 with its whole interval."""
    return gain is not None and gain.ci95[0] > 1
