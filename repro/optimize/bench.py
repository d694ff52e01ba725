"""The judge behind a run: an engine's warm session, opened when it is first needed, and the final confirmation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.engines.base import Engine
from repro.engines.session import Session
from repro.errors import EngineError
from repro.optimize.kernel_source import sha256
from repro.problems.catalogue import Problem
from repro.records.job import Job
from repro.runs import fixtures
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.studies.evaluation import JudgeOptions, Submission

# A request of a session: eight candidates that each compile, and a contest.
REQUEST_S = 600.0
PROFILE_S = 300.0
# Sessions that may end before the run gives up.
SESSIONS = 5
# Seconds of sampling of one contest, whose intervals need only exclude 1.
CONTEST_BUDGET_S = 6.0
# What the final confirmation times: eager and torch.compile, also with max-autotune.
FINAL_BUDGET_S = 20.0


class EngineJudge:
    """One problem's judge on an engine. A session that ended, as after a candidate that broke it, is opened again.

    alone: as in the judge's options.
    """

    def __init__(
        self, problem: Problem, results: Path, engine: Engine, progress: Progress, *, trust: str, alone: bool = True
    ) -> None:
        self.problem, self.results, self.engine, self.progress = problem, results, engine, progress
        self.options = JudgeOptions(
            trust=trust, timing_budget_s=CONTEST_BUDGET_S, compiled=False, profiled=False, alone=alone
        )
        self._stack = contextlib.ExitStack()
        self._session: Session | None = None
        self._checked: dict[str, str] = {}
        self._tier = ""
        self._sessions = 0

    @property
    def opened(self) -> dict[str, Any]:
        """See judging.Judge. Raises EngineError, PrerequisiteError."""
        told = self._warm().opened
        return {name: told.get(name) for name in ("fingerprint", "ceilings", "room")}

    @property
    def spent_s(self) -> dict[str, float]:
        """Return seconds by part of the latest request."""
        return self._session.spent_s if self._session is not None else {}

    def check(self, submissions: Sequence[Submission], tier: str, keep: Sequence[str]) -> list[dict[str, Any]]:
        """See judging.Judge. Raises EngineError after SESSIONS sessions that ended."""
        found: list[dict[str, Any]] = self._asked(lambda session: session.check(submissions, tier, keep))
        self._checked = {s.name: sha256(s.source.decode(errors="replace")) for s in submissions}
        self._tier = tier
        return found

    def time(self, submissions: Sequence[Submission], tier: str) -> dict[str, Any]:
        """See judging.Judge. What this session has no verdict on, as after a resume, is checked first."""

        def timed(session: Session) -> dict[str, Any]:
            due = {s.name: sha256(s.source.decode(errors="replace")) for s in submissions}
            if any(self._checked.get(n) != d for n, d in due.items()) or tier not in (self._tier, "screen"):
                session.check(submissions, tier, list(due))
                self._checked, self._tier = due, tier
            return session.time(submissions, tier)

        found: dict[str, Any] = self._asked(timed)
        return found

    def profile(self, source: bytes, entry: str) -> dict[str, Any]:
        """Return the hardware counters of one kernel in the problem's dtype, or the state and reason of their absence.

        It holds the GPU itself, so it runs before the session is opened.
        """
        kernel = Submission("input_kernel", source, entry)
        made = evaluation.job("profile", self.problem, [kernel], self.results, self.engine, self.options)
        job = replace(made, verb="profile", timeout_s=PROFILE_S, options={"dtypes": [self.problem.dtype]})
        (outcome,) = self.engine.run([job], self.progress.step)
        entries = (outcome.result or {}).get("profiles", [])
        found = next((e for e in entries if e["dtype"] == self.problem.dtype), None)
        if found is None:
            return {"state": "not_run", "why": outcome.error or "counters exist on a GPU only", "totals": {}}
        return {"state": found["state"], "why": found["why"], "totals": found["totals"]}

    def close(self) -> None:
        """End the session, which gives the GPU back."""
        self._stack.close()
        self._session, self._checked, self._tier = None, {}, ""

    def _warm(self) -> Session:
        if self._session is None:
            self._sessions += 1
            self.progress.step("opening a session of the judge")
            job = session_job(self.problem, self.results, self.engine, self.options)
            self._session = self._stack.enter_context(self.engine.session(job, self.progress.step))
        return self._session

    def _asked(self, request: Callable[[Session], Any]) -> Any:
        while True:
            try:
                return request(self._warm())
            except EngineError as error:
                with contextlib.suppress(EngineError):
                    self.close()
                if self._sessions >= SESSIONS:
                    raise
                self.progress.say(f"the judge's session ended and is opened again: {error}")


def session_job(problem: Problem, results: Path, engine: Engine, options: JudgeOptions) -> Job:
    """Return the job of a session. Raises PrerequisiteError if the fixture is missing or refused."""
    made = evaluation.job("session", problem, [], results, engine, options)
    return replace(made, verb="session", timeout_s=REQUEST_S, options=made.options | {"passes": []})


def ensure_fixture(problem: Problem, results: Path, engine: Engine, progress: Progress) -> None:
    """Measure the fixture of a shipped problem if it is missing."""
    if evaluation.ships(problem):
        fixtures.ensure([problem], results, engine, progress)


def confirm(
    problem: Problem, results: Path, engine: Engine, progress: Progress, kernels: dict[str, Submission], trust: str
) -> dict[str, Any]:
    """Judge and time kernels in processes of their own, beside eager, torch.compile and max-autotune.

    kernels: by role, `input` and `best`. Return {role: an entry as of `repro evaluate`}, with `error` if it failed.
    """
    options = JudgeOptions(trust=trust, timing_budget_s=FINAL_BUDGET_S)
    submissions = [replace(submission, name=role) for role, submission in kernels.items()]
    job = evaluation.job("confirm", problem, submissions, results, engine, options)
    (outcome,) = engine.run([job], progress.step)
    if outcome.result is None:
        return {"error": outcome.error or outcome.status}
    names = ("verdict", "reasons", "precision_class", "rel_l2", "time_ms", "speedup_all", "floor_ms", "floor_fraction",
             "measurement", "labels")  # fmt: skip
    found: dict[str, Any] = {e["solution"]: {n: e.get(n) for n in names} for e in outcome.result["results"]}
    found["baselines_ms"] = {n: b["time_ms"]["median"] for n, b in outcome.result.get("baselines", {}).items()}
    return found
