"""Requests to the model through the gateway: streamed, retried where that may help, with classified failures."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2

from repro.agents.deadline import Deadline
from repro.agents.events import Ending, Record
from repro.agents.relay import UNREACHABLE

ATTEMPTS = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LONGEST_RETRY_AFTER_S = 120.0
READ_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10.0
RETRIED = (408, 409, 429)
# Error types in the middle of a stream that are retried.
PASSING = ("overloaded_error", "api_error", "rate_limit_error", "timeout_error")
BROKEN = (anthropic.APIConnectionError, httpx2.TransportError)


class ContextFull(Exception):
    """The request is too long for the model."""


class Failed(Exception):
    """No reply will come. `ending` says who caused that."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.detail)
        self.ending = ending


class CutOff(Exception):
    """A stream ended before its message was complete."""


class Provider:
    """Client of the Messages API at the relay's address."""

    def __init__(self, url: str, deadline: Deadline, record: Record) -> None:
        self.deadline, self.record = deadline, record
        timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        # We retry ourselves, so that every attempt is logged. The gateway holds the credentials; this key is a dummy.
        self.client = anthropic.Anthropic(base_url=url, api_key="repro-agent", max_retries=0, timeout=timeout)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the model's whole message as plain JSON.

        Raises ContextFull, Failed, and Stopped if the session ends.
        """
        for attempt in range(1, ATTEMPTS + 1):
            self.deadline.check()
            try:
                return self._stream(request)
            except (anthropic.APIStatusError, CutOff, *BROKEN) as error:
                self.deadline.check()  # a session that ends closes its relay, which causes errors
                pause_s = self._pause_s(error, attempt)
                self.record.add("request", attempt=attempt, error=_said(error), retry_in_s=pause_s)
                if pause_s is None or attempt == ATTEMPTS:
                    raise Failed(_ending(error)) from error
                self.deadline.sleep(pause_s)
        raise AssertionError("unreachable")

    def _stream(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.client.messages.stream(**request) as stream:
            for _ in stream:
                self.deadline.check()
            message = stream.get_final_message()
        if message.stop_reason is None:
            raise CutOff("the stream ended before the message")
        plain = message.to_dict(mode="json", exclude_unset=True)
        for block in plain["content"]:  # type: ignore[attr-defined]
            block.pop("parsed_output", None)
        return plain

    def _pause_s(self, error: Exception, attempt: int) -> float | None:
        """Return the seconds until the next attempt, or None if none can help. Raises ContextFull."""
        if isinstance(error, anthropic.APIStatusError):
            if is_too_long(error.status_code, _said(error)):
                raise ContextFull from error
            wish = error.response.headers.get("x-should-retry")
            passing = error.status_code >= 500 or error.status_code in RETRIED or error.type in PASSING
            if wish == "false" or is_budget(_said(error)) or (not passing and wish != "true"):
                return None
            after = error.response.headers.get("retry-after", "")
            if after.replace(".", "", 1).isdigit():
                return min(float(after), LONGEST_RETRY_AFTER_S)
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1)))


def is_budget(text: str) -> bool:
    """Return whether an error says that the gateway's budget is spent."""
    return "[budget:" in text


def is_too_long(status: int, text: str) -> bool:
    """Return whether an error says that the request exceeds the model's context."""
    return status in (400, 413) and any(said in text.lower() for said in ("too long", "context window", "too large"))


def _said(error: Exception) -> str:
    if isinstance(error, anthropic.APIStatusError):
        return f"{error.status_code} {error.type or ''}: {error.api_message or error.message}"[:600]
    return f"{type(error).__name__}: {error}"[:600]


def ending_of(said: str) -> Ending:
    """Return the ending for an error reply. The gateway's own errors begin with its name and end with a code."""
    if is_budget(said):
        return Ending("timeout" if "[budget:wall]" in said else "budget", said)
    ours = UNREACHABLE in said or ("gateway: " in said and "[upstream" not in said and "[provider" not in said)
    return Ending("infra_error" if ours else "provider_error", said)


def _ending(error: Exception) -> Ending:
    """Return the ending if no reply came."""
    said = _said(error)
    if isinstance(error, anthropic.APIStatusError):
        return ending_of(said)
    if isinstance(error, CutOff | httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.ReadTimeout):
        return Ending("provider_error", said)
    return Ending("infra_error", f"the gateway cannot be reached. {said}")
