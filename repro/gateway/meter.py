"""The meter of a job: tokens by class (as the provider reports), money, turns, knowledge calls, refusals, errors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from repro.gateway.prices import CLASSES, usd
from repro.system import jsonio


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def tokens(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens by class in the `usage` of one reply.

    Cache writes without a lifetime count as 5 minutes, the API's default. Compaction is reported beside the totals and
    is added.
    """
    parts = [usage] + [
        part for part in usage.get("iterations") or []
        if isinstance(part, dict) and part.get("type") == "compaction"
    ]  # fmt: skip
    total = dict.fromkeys(CLASSES, 0)
    for part in parts:
        lifetimes = part.get("cache_creation") or {}
        hour = _count(lifetimes.get("ephemeral_1h_input_tokens"))
        written = max(
            _count(part.get("cache_creation_input_tokens")),
            hour + _count(lifetimes.get("ephemeral_5m_input_tokens")),
        )
        total["input"] += _count(part.get("input_tokens"))
        total["output"] += _count(part.get("output_tokens"))
        total["cache_read"] += _count(part.get("cache_read_input_tokens"))
        total["cache_write_1h"] += hour
        total["cache_write_5m"] += written - hour
    return total


class Meter:
    """The counts of one job, saved after every request.

    path: meter.json; an existing one is continued. rates: USD for a million tokens by class, or None for a model
    without a known price, and then `usd` stays null. failing: the provider's failure of the last message, or "".
    """

    def __init__(self, path: Path, rates: dict[str, float] | None, as_of: str, about: dict[str, Any]) -> None:
        self.path, self.rates, self.as_of, self.about = path, rates, as_of, about
        before = json.loads(path.read_text()) if path.exists() else {}
        self.turns = int(before.get("turns", 0))
        self.requests = int(before.get("requests", 0))
        self.tokens = dict.fromkeys(CLASSES, 0) | before.get("tokens", {})
        self.denied: Counter[str] = Counter(before.get("denied", {}))
        self.errors: Counter[str] = Counter(before.get("provider_errors", {}))
        self.models: Counter[str] = Counter(before.get("models", {}))
        self.retries = int(before.get("retries", 0))
        self.stopped = str(before.get("stopped", ""))
        self.failing = str(before.get("failing", ""))
        self.exhausted: list[str] = list(before.get("exhausted", []))
        self.kb: dict[str, Any] = before.get("kb", {"calls": 0, "hits": 0, "errors": 0, "latency_s": []})

    @property
    def usd(self) -> float | None:
        """Return the money spent, USD; None if the model's price is unknown."""
        return None if self.rates is None else usd(self.rates, self.tokens)

    @property
    def fresh_tokens(self) -> int:
        """Return the tokens without those read from the prompt cache."""
        return sum(n for kind, n in self.tokens.items() if kind != "cache_read")

    def add(self, usage: dict[str, Any], model: str) -> dict[str, int]:
        """Count the usage of one reply, complete or not; return it by class."""
        used = tokens(usage)
        for kind, n in used.items():
            self.tokens[kind] += n
        if model:
            self.models[model] += 1
        return used

    def consult(self, *, hits: int, latency_s: float, failed: bool) -> None:
        """Count one knowledge call."""
        self.kb["calls"] += 1
        self.kb["hits"] += hits
        self.kb["errors"] += int(failed)
        self.kb["latency_s"].append(round(latency_s, 4))

    def record(self) -> dict[str, Any]:
        """Return the whole state in the form of meter.json."""
        return self.about | {
            "turns": self.turns, "requests": self.requests, "tokens": self.tokens, "usd": self.usd,
            "price_as_of": self.as_of, "kb": self.kb, "denied": dict(self.denied), "stopped": self.stopped,
            "exhausted": self.exhausted, "provider_errors": dict(self.errors), "failing": self.failing,
            "retries": self.retries, "models": dict(self.models),
        }  # fmt: skip

    def save(self) -> None:
        """Write meter.json atomically. Raises OSError."""
        jsonio.write(self.path, self.record())
