"""The proposer `claude-code`: a sitting of an agent for each candidate, with the study's prompt, tools and gateway.

The agent works beside the judge without a GPU: it checks whether its program is right at small shapes, and the loop
times it. It runs as this user without a container.
"""

from __future__ import annotations

import threading
from pathlib import Path

from repro.engines import agent_local
from repro.engines.agent import OUTCOME, SOLUTIONS, AgentJob
from repro.engines.base import Engine
from repro.engines.resources import Lease
from repro.errors import ReproError
from repro.optimize.calls import Calls, NoAnswer
from repro.optimize.proposers.model import Model, Question
from repro.optimize.state import Program, State
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records.search import Proposal
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies.agent import sittings
from repro.studies.agent.design import Unit

WALL_S, TURNS = 600.0, 40
BRIEF, PARENT = "brief.md", "work/parent.py"


class Sitting(Model):
    """See the module. engine: of the machine without a GPU, for the fixture that the agent's checks need."""

    name = "claude-code"

    def __init__(
        self, problem: Problem, calls: Calls, results: Path, engine: Engine, progress: Progress, *,
        agent: str = "claude-code",
    ) -> None:  # fmt: skip
        super().__init__(problem, calls)
        self.results, self.engine, self.progress, self.agent = results, engine, progress, agent
        self._spent = self._others = {"usd": 0.0, "tokens": 0.0}

    @property
    def spent(self) -> dict[str, float]:
        """Return what all sittings of the run have cost, as `Calls.spent` does for other models."""
        return self._spent

    def propose(self, state: State, count: int) -> list[Proposal]:
        """See Proposer.propose."""
        self._spent = state.spent_by.get(self.name, self._spent)
        self._others = {name: total - self._spent[name] for name, total in state.spent.items()}
        return super().propose(state, count)

    def _mends(self, state: State) -> list[Question]:
        """Return nothing: the agent has checked its program itself."""
        return []

    def _rewrite(self, state: State, parent: Program, at: int) -> Proposal | None:
        """Hold one sitting. Raises NoAnswer if it hands in nothing."""
        brief = self._render("sitting", state, parent)
        number = len(state.of(parent.id)) + at
        line: dict[str, object] = {"purpose": f"sitting {parent.id} {number}", "model": self.model.model}
        self.model.lines.append(line)
        try:
            job = self._job(state, brief, state.source(parent.id))
            room = agent_local.Room(Lease(), threading.Event())
            left = room.run(job, self.model.upstream.secrets(), self.progress.step)
        except ReproError as error:
            line |= {"outcome": "failed", "detail": str(error)}
            raise NoAnswer("failed", str(error), final=True) from None
        meter, told = sittings.metered(left), sittings.told_of(left.agent_files.get(OUTCOME))
        fresh = sum(n for kind, n in meter.tokens.items() if kind != "cache_read")
        self._spent = {"usd": round(self._spent["usd"] + (meter.usd or 0.0), 6),
                       "tokens": self._spent["tokens"] + fresh}  # fmt: skip
        status, detail = told.status or "infra_error", told.detail or left.ending
        line |= {"outcome": status, "detail": detail, "turns": meter.turns, "usd": meter.usd,
                 "tokens": meter.tokens, "wall_s": left.wall_s}  # fmt: skip
        solution = left.agent_files.get(f"{SOLUTIONS}/{self.problem.path.name}")
        if solution is None:
            final = status in ("budget", "infra_error", "provider_error", "agent_error")
            raise NoAnswer(status, detail or "it handed in nothing", final=final)
        text = solution.decode(errors="replace")
        transcript = {"opt_prompt.txt": brief}
        return Proposal(text, parent.entry, parent.id, f"sitting_{number}", "P", {}, "an agent's own idea", transcript)

    def _job(self, state: State, brief: str, source: str) -> AgentJob:
        """Return the sitting as a job. Raises ReproError if the fixture of its checks cannot be made."""
        small = catalogue.load(self.problem.id, size="smoke")
        fixtures.ensure(Run(self.engine, self.results, self.progress), [small])
        unit = Unit("baseline", (self.problem.id,), 0, "optimize")
        files = sittings.files(unit, "smoke", "cpu", self.results)
        files |= {BRIEF: brief.encode(), PARENT: source.encode()}
        usd, tokens = self.model.usd, self.model.tokens
        budgets = {
            "wall_s": WALL_S, "turns": TURNS,
            "usd": None if usd is None else max(0.0, usd - self._spent["usd"] - self._others["usd"]),
            "tokens": None if tokens is None else max(0, tokens - int(self._spent["tokens"] + self._others["tokens"])),
        }  # fmt: skip
        upstream = self.model.upstream
        script = upstream.script.read_bytes() if upstream.script else b""
        gateway = self.model.gateway(budgets)
        agent = {name: gateway[name] for name in ("schema_version", "job", "arm", "model", "budgets")} | {
            "agent": self.agent, "problems": [self.problem.id], "size": "smoke", "device": "cpu", "mode": "problem",
            "knowledge": "none", "expect_tools": [], "isolation": "processes", "brief": BRIEF,
        }  # fmt: skip
        return AgentJob("optimize", gateway, agent, files, script, upstream.kind != "replay", WALL_S)
