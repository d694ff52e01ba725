"""One sitting of an agent: what it may spend, how it ended, and the record that the bundle keeps of it.

Only what the host saw decides how a sitting ended: the model's requests, the limits, and the sandbox's engine. Nothing
that the agent wrote does.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.util import Limit, LimitExceededError, LimitScope, cost_limit, time_limit, turn_limit

from repro.agents import knowledge, models
from repro.agents.knowledge import Log
from repro.errors import EngineError, printable
from repro.knowledge.tools import BY_NAME
from repro.records.agent import (
    AgentAttempt,
    AgentRecord,
    Ending,
    FailureClass,
    MeterRecord,
)
from repro.studies.agent.design import Budgets, Design, Unit
from repro.system import stopwatch
from repro.system.jsonio import Json

# status -> who caused it. An agent's own failure is a result and is never tried again.
CLASSES: dict[Ending, FailureClass] = {
    "completed": "agent", "budget": "agent", "refused": "agent", "gave_up": "agent", "agent_error": "agent",
    "timeout": "agent", "provider_error": "provider", "infra_error": "infrastructure", "interrupted": "interrupted",
}  # fmt: skip
POLL_S = 0.5


class Stopped(Exception):
    """The study ends a sitting. status: how it counts."""

    def __init__(self, status: Ending, why: str) -> None:
        super().__init__(why)
        self.status: Ending = status


def limits(budgets: Budgets) -> list[Limit]:
    """Return the limits that Inspect enforces: time, turns and money. Tokens are bounded by `Sitting.watch`."""
    return [time_limit(budgets.wall_s), turn_limit(budgets.turns), cost_limit(budgets.usd)]


def cause(error: BaseException) -> BaseException:
    """Return the first error in groups of errors, a limit before others."""
    while isinstance(error, BaseExceptionGroup):
        found, _ = error.split(LimitExceededError)
        error = (found or error).exceptions[0]
    return error


@dataclass
class Sitting:
    """A sitting as it goes on. made: the attempts before it."""

    design: Design
    unit: Unit
    made: list[AgentAttempt]
    waited_s: float = 0.0
    started: str = field(default_factory=stopwatch.utc)
    begin: float = field(default_factory=time.monotonic)
    agent_version: str = ""
    tools: list[str] = field(default_factory=list)
    isolation: Json = field(default_factory=dict)
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        self.log = Log(self.design.budgets.kb_calls)

    async def watch(self, stopping: Any) -> None:
        """Raise Stopped once the run is being stopped, or the budget of tokens is spent."""
        most = self.design.budgets.tokens
        while True:
            await anyio.sleep(POLL_S)
            if stopping.is_set():
                raise Stopped("interrupted", "the run was stopped")
            spent = sum(count for kind, count in self.meter().tokens.items() if kind != "cache_read")
            if most is not None and spent > most:
                raise Stopped("budget", f"{spent:,} of {most:,} tokens are spent")

    def meter(self) -> MeterRecord:
        """Return what the model's requests cost so far."""
        turns, used, seen = 0, Counter[str](), Counter[str]()
        for event in _requests():
            if event.output.usage is not None:
                used.update(models.tokens(event.output.usage))
                seen[event.output.model] += 1
                turns += 1
        rates = next(iter(self.design.prices.get("models", {}).values()), None)
        return MeterRecord(
            turns=turns, tokens=dict(used), models=dict(seen), usd=models.price(rates, used), kb=self.log.total()
        )

    def ended(self, error: BaseException | None, scope: LimitScope | None, solutions: int) -> tuple[Ending, str]:
        """Return how the sitting ended, and the same in words.

        Once a reply has come, the agent could have broken its own sandbox. Then a failure whose cause the host did not
        see counts as the agent's; otherwise it could gain another attempt.
        """
        requests = _requests()
        if (seen := _seen(error, scope, requests)) is not None:
            return seen
        if (shown := self._unshown(requests)) is not None:
            return "infra_error", shown
        if error is not None:
            return ("agent_error" if requests else "infra_error"), f"{type(error).__name__}: {error}"
        if requests and requests[-1].output.stop_reason == "content_filter":
            return "refused", "the model refused"
        if not solutions:
            return "gave_up", "ended without a solution"
        missing = len(self.unit.problems) - solutions
        return "completed", f"without a solution of {missing} problems" if missing > 0 else ""

    def _unshown(self, requests: list[ModelEvent]) -> str | None:
        """Return why the model cannot represent its arm: it was not shown the knowledge tools of the arm, or others."""
        tools = next((event.tools for event in requests if event.tools), None)
        if tools is None:
            return None
        names, served = [tool.name for tool in tools], f"mcp__{knowledge.SERVER}__"
        shown = {bare for name in names if (bare := name.rpartition("__")[2]) in BY_NAME or name.startswith(served)}
        self.tools = sorted(shown)
        wanted = self.design.knowledge(self.unit.arm) != "none"
        if wanted and not shown:
            return "the model was not shown the tools of the knowledge base"
        return None if wanted or not shown else f"the model was shown tools of a knowledge base: {', '.join(shown)}"

    def record(
        self, ending: Ending, detail: str, solutions: dict[str, str], cut: list[str], folder: str
    ) -> AgentRecord:
        """Return the record of the sitting with all of its attempts. solutions: file name -> place in the bundle."""
        detail, klass, meter = printable(detail)[:500], CLASSES[ending], self.meter()
        self.made.append(AgentAttempt(
            attempt=len(self.made) + 1, started=self.started, wall_s=round(self.wall_s, 1), waited_s=self.waited_s,
            status=ending, klass=klass, detail=detail, turns=meter.turns, usd=meter.usd, tokens=meter.tokens,
        ))  # fmt: skip
        return AgentRecord(
            schema_version=1, job=self.unit.id, arm=self.unit.arm, problems=list(self.unit.problems),
            repeat=self.unit.repeat, agent=self.design.agent, model=self.design.model,
            knowledge=self.design.knowledge(self.unit.arm), scripted=self.design.scripted, finished=klass == "agent",
            status=ending, klass=klass, detail=detail, attempts=self.made, folder=folder, solutions=solutions,
            meter=meter, consulted=self.log.used(), isolation=self.isolation, cut=cut,
            agent_version=self.agent_version, tools=self.tools,
        )  # fmt: skip


def _seen(
    error: BaseException | None, scope: LimitScope | None, requests: list[ModelEvent]
) -> tuple[Ending, str] | None:
    """Return an ending that the host caused or saw itself: a stop, a limit, the engine, or the provider."""
    if isinstance(error, Stopped):
        return error.status, str(error)
    if scope is not None and scope.limit_error is not None:
        return ("timeout" if scope.limit_error.type == "time" else "budget"), scope.limit_error.message
    if isinstance(error, EngineError):
        return "infra_error", str(error)
    if requests and (refused := requests[-1].error):
        return "provider_error", refused.strip().splitlines()[-1]
    return None


def _requests() -> list[ModelEvent]:
    """Return the model's requests so far, those that have ended alone."""
    return [event for event in transcript().events if isinstance(event, ModelEvent) and not event.pending]
