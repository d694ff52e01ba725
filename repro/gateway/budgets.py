"""What a cell may use, the same for every agent."""

from __future__ import annotations

import time
from collections.abc import Callable

from repro.gateway.meter import Meter
from repro.gateway.refusal import Refusal

NAMES = ("wall_s", "turns", "tokens", "usd", "kb_calls")
# Spent budgets are refused as an invalid request: neither the SDK nor Claude Code tries such a request again.
TOLD = {
    "wall": "the time of this run is used up: {used:.0f} of {limit:g} s",
    "turns": "the turns of this run are used up: {used:g} of {limit:g}",
    "tokens": "the tokens of this run are used up: {used:g} of {limit:g}",
    "usd": "the money of this run is used up: {used:.4f} of {limit:g} USD",
    "kb_calls": "the knowledge calls of this run are used up: {used:g} of {limit:g}",
}


class Budgets:
    """Limits on one cell's use. A request that was let in is finished, so tokens and money end at most one request
    beyond their limits: side by side go only requests that together cannot reach them. Turns and knowledge calls end
    on their limits.

    limits: wall_s (from the first request on), turns, tokens (all but reads from the prompt cache), usd, kb_calls;
    None is no limit.
    """

    def __init__(
        self, limits: dict[str, float | None], meter: Meter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.meter, self._clock = limits, meter, clock
        self._began: float | None = None
        # what each request under way may use at most: bytes that it sends, tokens that it asks for
        self._reserved: dict[str, tuple[int, int]] = {}

    @property
    def under_way(self) -> int:
        """Requests for a message that were let in and are not answered yet."""
        return len(self._reserved)

    def reserve(self, request: str, size: int, most: int) -> None:
        """Lets a request in. size: of its body, bytes; most: tokens of its answer."""
        self._reserved[request] = (size, max(0, most))

    def release(self, request: str) -> None:
        """Notes that a request is counted."""
        self._reserved.pop(request, None)

    def fits(self, size: int, most: int) -> bool:
        """Whether a further request could not bring tokens or money to their limits, with all that are under way: a
        token of input has a byte at least."""
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
        """Starts the wall clock, once."""
        self._began = self._clock() if self._began is None else self._began

    @property
    def wall_s(self) -> float:
        """Time since the first request, s."""
        return 0.0 if self._began is None else self._clock() - self._began

    @property
    def wall_left_s(self) -> float:
        """Time left, s; infinity without a limit."""
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
        """Why no further request may pass, or None. The first refusal is what stopped the cell."""
        for name, (used, limit) in self._used(admitted=True).items():
            if limit is not None and used >= limit:
                self.meter.stopped = self.meter.stopped or f"budget:{name}"
                return Refusal(f"budget:{name}", TOLD[name].format(used=used, limit=limit))
        return None

    def settle(self) -> None:
        """Notes after a request which limits are reached."""
        for name, (used, limit) in self._used(admitted=False).items():
            if limit is not None and used >= limit and name not in self.meter.exhausted:
                self.meter.exhausted.append(name)

    def consult(self, under_way: int) -> Refusal | None:
        """Why no further knowledge call may pass, or None. The agent can go on without.

        under_way: calls that were let in and are not counted yet.
        """
        limit, used = self.limits.get("kb_calls"), self.meter.kb["calls"] + under_way
        if limit is None or used < limit:
            return None
        if "kb_calls" not in self.meter.exhausted:
            self.meter.exhausted.append("kb_calls")
        return Refusal("budget:kb_calls", TOLD["kb_calls"].format(used=used, limit=limit))
