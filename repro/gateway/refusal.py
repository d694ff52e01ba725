"""A refused request: the reason, and a reply that keeps the agent's client from retrying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Clients read this header before the status: `false` ends their retries.
FINAL = {"x-should-retry": "false"}


@dataclass(frozen=True)
class Refusal:
    """code: one of a fixed set, counted by the meter. detail: one sentence for the agent and the journal."""

    code: str
    detail: str
    status: int = 400
    kind: str = "invalid_request_error"

    def body(self) -> dict[str, Any]:
        """Return the refusal in the form of the Messages API's own errors."""
        return error_body(self.kind, f"gateway: {self.detail} [{self.code}]")


def error_body(kind: str, message: str) -> dict[str, Any]:
    """Return an error in the form of the Messages API."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def brief(text: object, limit: int = 120) -> str:
    """Return a client's text, short enough to be repeated to it."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[:limit] + "..."
