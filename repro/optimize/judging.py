"""The judge behind a run: warm sessions of an engine, what the loop keeps of their answers, the last confirmation."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from repro.engines import resources
from repro.engines.base import Engine
from repro.engines.session import Session
from repro.errors import EngineError, ReproError
from repro.judge.correctness.distance import BIAS
from repro.judge.timing import speedups
from repro.problems.catalogue import Problem
from repro.records.options import Options, Trust
from repro.records.profile import ProfileResult
from repro.records.result import JudgeResult
from repro.records.search import AllJudged, Confirmation, Confirmed, Contest, Gain, Judged, Median, Profiled, Timed
from repro.records.session import Checked, CheckTier, Opened
from repro.records.verdict import Distances, Reason
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.studies.evaluation import Submission
from repro.system import jsonio
from repro.system.digest import sha256

# A request of a session: eight candidates that each compile, and a contest.
PROFILE_S = 300.0
# Sessions that may end before the run gives up.
SESSIONS = 5
# Seconds of sampling of one contest, and its most blocks: its intervals need only exclude 1, so a ratio that is not yet
# known to 0.5 % gets no second budget.
CONTEST_BUDGET_S, CONTEST_BLOCKS = 6.0, 200
# What the final confirmation times: eager and torch.compile, also with max-autotune.
FINAL_BUDGET_S = 20.0
# Reasons of a verdict that say that memory was full.
_FULL = {"out_of_memory", "judge_out_of_memory"}
# Reasons of a verdict that a search keeps, and hexadecimal digits of a digest of outputs.
REASONS, DIGITS = 3, 16
# A ratio needs this many samples of both.
LEAST_SAMPLES = 3
T = TypeVar("T")


@dataclass
class EngineJudge:
    """One problem's judge on an engine. A session that ended, as after a candidate that broke it, is opened again.

    rewritten: whether all candidates are rewrites of ours: then they may be screened in one process, and only the final
    confirmation times the baselines alone. Where the engine has further GPUs, `all` uses a judge on each of them.
    """

    problem: Problem
    results: Path
    engine: Engine
    progress: Progress
    trust: Trust
    rewritten: bool = False

    def __post_init__(self) -> None:
        options = Options(
            trust=self.trust, timing_budget_s=CONTEST_BUDGET_S, modes=("eager",), passes=("control",),
            alone=not self.rewritten, shared=self.rewritten, max_blocks=CONTEST_BLOCKS,
        )  # fmt: skip
        self._run = Run(self.engine, self.results, self.progress, options)
        self._stack = contextlib.ExitStack()
        self._session: Session | None = None
        self._checked: dict[str, str] = {}
        self._tier = ""
        self._sessions, self._waits = 0, True
        self._further: list[_Further] = []

    @property
    def opened(self) -> Opened:
        """Return what the judge says when it is opened. Raises EngineError, PrerequisiteError."""
        found, more = self._warm().opened, len(self._further)
        return found.model_copy(update={"sessions": 1 + more}) if more else found

    @property
    def spent_s(self) -> dict[str, float]:
        """Return seconds by part of the latest request."""
        return self._session.spent_s if self._session is not None else {}

    def check(self, submissions: Sequence[Submission], tier: CheckTier, keep: Sequence[str]) -> list[Checked]:
        """Return one verdict each. tier: see JudgeSession. keep: names of solutions whose full verdict stands.

        Raises EngineError after SESSIONS sessions that ended.
        """
        found = self._asked(lambda session: session.check(submissions, tier, keep))
        self._checked = _digests(submissions)
        self._tier = tier
        return found

    def time(self, submissions: Sequence[Submission], tier: CheckTier) -> JudgeResult:
        """Return times beside each other and the baselines. What this session has no verdict on, as after a resume, is
        checked first."""

        def timed(session: Session) -> JudgeResult:
            due = _digests(submissions)
            if any(self._checked.get(n) != d for n, d in due.items()) or tier not in (self._tier, "screen"):
                session.check(submissions, tier, list(due))
                self._checked, self._tier = due, tier
            return session.time(submissions, tier)

        return self._asked(timed)

    def all(self, works: Sequence[Callable[[EngineJudge], T]]) -> Iterator[T]:
        """Do works side by side, each with a judge on one GPU; yield what they return, in their order.

        A work whose session on a further GPU ended is done here.
        """
        ready = [each for each in self._further if each.ready]
        begun = dict(zip(works[1:], map(_Further.ask, ready, works[1:]), strict=False))
        for work in works:
            future = begun.get(work)
            try:
                yield future.result() if future else work(self)
            except EngineError as error:
                if future is None:
                    raise
                self.progress.say(f"a further session ended, and the first does its work: {error}")
                yield work(self)

    def profile(self, kernel: Submission) -> Profiled:
        """Return the hardware counters of one kernel in the problem's dtype, or the state and reason of their absence.

        It holds the GPU itself, so it runs before the session is opened.
        """
        if self.engine.device != "cuda":
            return Profiled(state="no_gpu", why="hardware counters need an NVIDIA GPU", totals={})
        made = evaluation.job(self._run, "profile", self.problem, [replace(kernel, name="input_kernel")])
        job = replace(made, verb="profile", timeout_s=PROFILE_S, dtypes=(self.problem.dtype,))
        (outcome,) = self.engine.submit([job], self.progress.step)
        entries = outcome.result.profiles if isinstance(outcome.result, ProfileResult) else []
        found = next((e for e in entries if e.dtype == self.problem.dtype), None)
        if found is None:
            return Profiled(state="not_run", why=outcome.error or "counters exist on a GPU only", totals={})
        return Profiled(state=found.state, why=found.why, totals=found.totals)

    def ensure_fixture(self) -> None:
        """Measure the fixture of a shipped problem if it is missing."""
        if evaluation.ships(self.problem):
            fixtures.ensure(self._run, [self.problem])

    def confirm(self, kernels: dict[str, Submission]) -> Confirmation:
        """Judge and time kernels in processes of their own, beside eager, torch.compile and max-autotune.

        kernels: by role, `input` and `best`. Where memory does not hold both, each has a job of its own.
        """
        found = self._confirmed(kernels)
        told = [reason.code for each in (found.input, found.best) if each for reason in each.reasons]
        if "memory" not in found.error and not _FULL & {*told}:
            return found
        self.progress.step("confirming each kernel alone: memory does not hold both")
        first, best = (self._confirmed({role: kernels[role]}) for role in ("input", "best"))
        error = "; ".join(filter(None, (first.error, best.error)))
        return best.model_copy(update={"input": first.input, "error": error})

    def _confirmed(self, kernels: dict[str, Submission]) -> Confirmation:
        options = Options(trust=self.trust, timing_budget_s=FINAL_BUDGET_S)
        submissions = [replace(submission, name=role) for role, submission in kernels.items()]
        run = Run(self.engine, self.results, self.progress, options)
        (outcome,) = self.engine.submit([evaluation.job(run, "confirm", self.problem, submissions)], self.progress.step)
        if not isinstance(outcome.result, JudgeResult):
            return Confirmation(error=outcome.error or outcome.status)
        result = outcome.result
        told = {entry.solution: entry.to_json() for entry in result.results}
        found = {role: {name: each.get(name) for name in Confirmed.model_fields} for role, each in told.items()}
        return Confirmation.model_validate(found | {"baselines_ms": result.baselines_ms})

    def close(self) -> None:
        """End all sessions, which gives the GPUs back."""
        closing = [each.close() for each in self._further]
        self._end()
        wait(closing)

    def _end(self) -> None:
        self._stack.close()
        self._session, self._checked, self._tier = None, {}, ""

    def _warm(self) -> Session:
        if self._session is None:
            self._sessions += 1
            self._step("opening a session of the judge")
            job = evaluation.session_job(self._run, self.problem)
            self._session = self._stack.enter_context(self.engine.session(job, self._step))
            if self._waits and not self._further:
                self._further = [_Further(self) for _ in range(1, len(self.engine.capacity().gpus))]
        return self._session

    def _step(self, line: str) -> None:
        if self._waits:
            self.progress.step(line)
        elif line == resources.WAITING:
            raise EngineError("no further GPU is free")

    def _asked(self, request: Callable[[Session], T]) -> T:
        while True:
            try:
                return request(self._warm())
            except EngineError as error:
                with contextlib.suppress(EngineError):
                    self._end()
                if not self._waits or self._sessions >= SESSIONS:
                    raise
                self.progress.say(f"the judge's session ended and is opened again: {error}")


class _Further:
    """The judge on a further GPU, which must be free, in a thread of its own: a session ends with its thread."""

    def __init__(self, first: EngineJudge) -> None:
        self.judge, self._thread = copy.copy(first), ThreadPoolExecutor(1, "judge")
        self.judge._stack, self.judge._waits = contextlib.ExitStack(), False
        self.judge._end()
        self._opening = self._thread.submit(self._open)

    def _open(self) -> None:
        try:
            self.judge._warm()
        except ReproError as error:
            self.judge._sessions = SESSIONS
            self.judge.progress.say(f"the search has a GPU less: {error}")

    @property
    def ready(self) -> bool:
        """Return whether it takes work: its session was opened, and not too many have ended."""
        return self._opening.done() and self.judge._sessions < SESSIONS

    def ask(self, work: Callable[[EngineJudge], T]) -> Future[T]:
        """Begin a work. One whose session ends raises EngineError; the next one gets a new session."""
        return self._thread.submit(work, self.judge)

    def close(self) -> Future[None]:
        """Begin to end the session, after what it does."""
        closing = self._thread.submit(self.judge.close)
        self._thread.shutdown(wait=False)
        return closing


def _digests(submissions: Sequence[Submission]) -> dict[str, str]:
    return {s.name: sha256(s.source.decode(errors="replace")) for s in submissions}


def check(judge: EngineJudge, submissions: list[Submission], tier: CheckTier, keep: Sequence[str] = ()) -> AllJudged:
    """Return name -> what the loop keeps of each verdict.

    outputs: a digest of the distances of every output from the reference, in every trial, and of a screening's bits of
    the whole output. Two solutions of one request get the same inputs, so equal outputs have equal digests.
    """
    return {
        entry.solution: Judged(
            verdict=entry.verdict, reasons=_told(entry.reasons), precision_class=entry.precision_class,
            rel_l2=entry.rel_l2, labels=entry.labels, outputs=outputs(entry.distances, entry.bits),
        )
        for entry in judge.check(submissions, tier, keep)
    }  # fmt: skip


def _told(reasons: list[Reason]) -> list[str]:
    return [f"{reason.code}: {reason.detail}" for reason in reasons[:REASONS]]


def time(judge: EngineJudge, submissions: list[Submission], tier: CheckTier) -> Contest:
    """Return what the loop keeps of a contest: samples, medians and verdicts by name, the baselines' medians."""
    told = judge.time(submissions, tier)
    programs = {
        entry.solution: Timed(
            verdict=entry.verdict, reasons=_told(entry.reasons),
            time_ms=Median(median=entry.time_ms.median) if entry.time_ms else None, floor_ms=entry.floor_ms,
            measurement=entry.measurement,
            samples_ms=told.samples_ms[entry.solution].gated.device_ms if entry.solution in told.samples_ms else [],
        )
        for entry in told.results
    }  # fmt: skip
    found = Contest(programs=programs, baselines_ms=told.baselines_ms, clock=told.timing.clock)
    again = told.timing.timed_again
    return found.model_copy(update={"timed_again": again}) if again else found


def ratio(contest: Contest, base: str, ours: str) -> Gain | None:
    """Return the speedup of one program over another in a contest, with its interval; None without samples of both."""
    samples = [contest.programs[name].samples_ms for name in (base, ours) if name in contest.programs]
    if len(samples) < 2 or any(len(each) < LEAST_SAMPLES for each in samples):
        return None
    found = speedups.speedup(*samples)
    return Gain(ratio=found.ratio, ci95=found.ci95, n=min(map(len, samples)))


def equal_outputs(told: AllJudged, parent: str, candidate: str) -> bool:
    """Return whether a candidate's outputs had the bits and the distances of its parent's in one check."""
    mine, theirs = (told[name].outputs if name in told else "" for name in (candidate, parent))
    return bool(mine) and mine == theirs


def outputs(distances: dict[str, list[Distances]], bits: list[int] | None) -> str:
    """Return a digest of outputs, "" without any. The distance that looks at other elements each time is left out."""
    if not distances:
        return ""
    fixed = {
        kind: [each.model_dump(exclude_unset=True, exclude={BIAS}) for each in every]
        for kind, every in distances.items()
    }
    return sha256(jsonio.dumps([fixed, bits]))[:DIGITS]
