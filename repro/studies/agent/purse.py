"""The money of a whole run, held by the process that starts its sittings, wherever these run.

A sitting starts only if its own budget can be set aside, so that all of them have equal budgets and the run's is never
exceeded by more than a gateway's last request. What a sitting leaves of its budget goes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from repro.engines.agent import METER, AgentOutcome
from repro.errors import PrerequisiteError
from repro.records.agent import AgentAttempt, MeterRecord

WAIT_S = 0.5


class Spent(PrerequisiteError):
    """The run's money does not suffice for another sitting."""


class Purse:
    """limit_usd: of the run, None for none. each_usd: the budget of one sitting."""

    def __init__(self, limit_usd: float | None, each_usd: float) -> None:
        self.limit_usd, self.each_usd, self.spent_usd = limit_usd, each_usd, 0.0
        self._reserved = 0
        self._lock = threading.Lock()

    @contextmanager
    def sitting(self, pause: Callable[[float], bool]) -> Generator[Callable[[AgentOutcome], None]]:
        """Set a sitting's budget aside while the block runs; wait while other sittings may leave enough.

        Yields a function that takes the sitting's outcome, and with it what was really spent; without one all of it
        counts as spent. pause: waits, and returns whether the run is being stopped. Raises Spent.
        """
        if self.limit_usd is None:
            yield lambda left: None
            return
        while not self._reserve(self.limit_usd):
            if pause(WAIT_S):
                raise Spent("the run was stopped")
        cost = [self.each_usd]

        def settle(left: AgentOutcome) -> None:
            cost[0] = cost_usd(_meter(left), self.each_usd)

        try:
            yield settle
        finally:
            with self._lock:
                self._reserved -= 1
                self.spent_usd += cost[0]

    def _reserve(self, limit_usd: float) -> bool:
        """Return whether another sitting's budget was set aside. Raises Spent if no sitting can leave enough."""
        with self._lock:
            free = limit_usd - self.spent_usd - self._reserved * self.each_usd
            if free >= self.each_usd:
                self._reserved += 1
                return True
            if self._reserved == 0:
                raise Spent(
                    f"the run's budget is spent: {self.spent_usd:.2f} of {limit_usd:.2f} USD",
                    f"a sitting may cost {self.each_usd:.2f} USD",
                    "Repeat with --resume and a larger --budget-run-usd.",
                )
        return False


def cost_usd(attempt: AgentAttempt | MeterRecord, each_usd: float) -> float:
    """Return what a sitting cost by its meter or its record; all of its budget if its requests have no cost."""
    if attempt.usd is not None:
        return attempt.usd
    return each_usd if attempt.turns else 0.0


def _meter(left: AgentOutcome) -> MeterRecord:
    """Return a gateway's meter; one that was lost counts as a sitting that made requests, unless nothing started."""
    try:
        return MeterRecord.model_validate_json(left.gateway_files[METER])
    except (KeyError, ValueError):
        return MeterRecord(turns=0 if left.cause in ("infrastructure", "stopped") and not left.agent_files else 1)
