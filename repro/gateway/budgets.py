"""Budgets of a job, equal for every agent."""

from __future__ import annotations

import time
from collections.abc import Callable

from repro.gateway.meter import Meter
from repro.gateway.refusal import Refusal

NAMES = ("wall_s", "turns", "tokens", "usd", "kb_calls")
# A spent budget is refused as an invalid request, which neither the SDK nor Claude Code retries.
TOLD = {
    "wall": "the time of this run is used up: {used:.0f} of {limit:g} s",
    "turns": "the turns of this run are used up: {used:g} of {limit:g}",
    "tokens": "the tokens of this run are used up: {used:g} of {limit:g}",
    "usd": "the money of this run is used up: {used:.4f} of {limit:g} USD",
    "kb_calls": "the knowledge calls of this run are used up: {used:g} of {limit:g}",
}


class Budgets:
    """Limits on one job's use.

    An admitted request is finished. Requests run side by side only if together they cannot reach the limits, so tokens
    and money exceed their limits by at most one request. Turns and knowledge calls end exactly on their limits.

    limits: wall_s (from the first request on), turns, tokens (without reads from the prompt cache), usd, kb_calls; None
    is no limit.
    """

    def __init__(
        self, limits: dict[str, float | None], meter: Meter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.meter, self._clock = limits, meter, clock
        self._began: float | None = None
        # By request under way, the most that it may use: bytes sent, tokens requested.
        self._reserved: dict[str, tuple[int, int]] = {}

    @property
    def under_way(self) -> int:
        """Return the number of admitted message requests without an answer yet."""
        return len(self._reserved)

    def reserve(self, request: str, size: int, most: int) -> None:
        """Admit a request. size: bytes of its body; most: tokens of its answer."""
        self._reserved[request] = (size, max(0, most))

    def release(self, request: str) -> None:
        """Record that a request has been counted."""
        self._reserved.pop(request, None)

    def fits(self, size: int, most: int) -> bool:
        """Return whether one more request, with all that are under way, cannot reach the limits of tokens or money.

        An input token has at least one byte, so the body's bytes bound its tokens.
        """
        told = [*self._reserved.values(), (size, max(0, most))]
        sent, asked = sum(one for one, _ in told), sum(other for _, other in told)
        rates = self.meter.rates or {}
        dearest = max((rates[kind] for kind in rates if kind != "output"), default=0.0)
        usd = (sent * dearest + asked * rates.get("output", 0.0)) / 1e6
        tokens, money = self.limits.get("tokens"), self.limits.get("usd")
        if tokens is not None and self.meter.fresh_tokens + sent + asked >= tokens:
            return False
        return money is None or (self.meter.usd or 0.0) + usd < money

    def begin(self) -> None:
        """Start the wall clock, once."""
        self._began = self._clock() if self._began is None else self._began

    @property
    def wall_s(self) -> float:
        """Return the time since the first request, s."""
        return 0.0 if self._began is None else self._clock() - self._began

    @property
    def wall_left_s(self) -> float:
        """Return the time left, s; infinity without a limit."""
        limit = self.limits.get("wall_s")
        return float("inf") if limit is None else limit - self.wall_s

    def _used(self, *, admitted: bool) -> dict[str, tuple[float, float | None]]:
        turns = self.meter.turns + (self.under_way if admitted else 0)
        return {
            "wall": (self.wall_s, self.limits.get("wall_s")),
            "turns": (turns, self.limits.get("turns")),
            "tokens": (self.meter.fresh_tokens, self.limits.get("tokens")),
            "usd": (self.meter.usd or 0.0, self.limits.get("usd")),
        }

    def refusal(self) -> Refusal | None:
        """Return why no further request may pass, or None. The first refusal records what stopped the job."""
        for name, (used, limit) in self._used(admitted=True).items():
            if limit is not None and used >= limit:
                self.meter.stopped = self.meter.stopped or f"budget:{name}"
                return Refusal(f"budget:{name}", TOLD[name].format(used=used, limit=limit))
        return None

    def settle(self) -> None:
        """Record after a request which limits are reached."""
        for name, (used, limit) in self._used(admitted=False).items():
            if limit is not None and used >= limit and name not in self.meter.exhausted:
                self.meter.exhausted.append(name)

    def consult(self, under_way: int) -> Refusal | None:
        """Return why no further knowledge call may pass, or None. The agent can continue without them.

        under_way: admitted calls that are not counted yet.
        """
        limit, used = self.limits.get("kb_calls"), self.meter.kb["calls"] + under_way
        if limit is None or used < limit:
            return None
        if "kb_calls" not in self.meter.exhausted:
            self.meter.exhausted.append("kb_calls")
        return Refusal("budget:kb_calls", TOLD["kb_calls"].format(used=used, limit=limit))
