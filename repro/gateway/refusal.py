"""A request that does not pass: why, and how the agent is told so that it does not try the same again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Clients read this header before the status: `false` ends their retries.
FINAL = {"x-should-retry": "false"}


@dataclass(frozen=True)
class Refusal:
    """code: a word of a fixed set, counted by the meter. detail: one sentence for the agent and the journal."""

    code: str
    detail: str
    status: int = 400
    kind: str = "invalid_request_error"

    def body(self) -> dict[str, Any]:
        """The shape of the Messages API's own errors."""
        return error_body(self.kind, f"gateway: {self.detail} [{self.code}]")


def error_body(kind: str, message: str) -> dict[str, Any]:
    """An error as the Messages API writes it."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def brief(text: object, limit: int = 120) -> str:
    """What a client sent, short enough to be repeated to it."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[:limit] + "..."
