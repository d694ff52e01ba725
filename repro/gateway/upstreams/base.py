"""The interface of an upstream: it takes a call and returns a status, headers and bytes as they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from repro.errors import ReproError


class UpstreamLost(ReproError):
    """The provider could not be reached, or disconnected before its answer was complete. code: counted by the meter."""

    def __init__(self, code: str, why: str = "") -> None:
        self.code = code
        super().__init__("the provider's answer was lost", why)

    @property
    def told(self) -> str:
        """Return the message for the agent, with the code that says what failed."""
        return f"gateway: {self} [upstream:{self.code}]"


@dataclass(frozen=True)
class Call:
    """One request to the provider.

    path: /v1/messages or /v1/messages/count_tokens. beta: it was made with `?beta=true`.
    """

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    beta: bool = False

    @property
    def streams(self) -> bool:
        """Return whether the answer should be a stream of events."""
        return bool(self.body.get("stream")) and self.path == "/v1/messages"


async def _nothing() -> None:
    return None


@dataclass
class Reply:
    """An answer under way. chunks: raises UpstreamLost if it breaks off. close: ends it, complete or not."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]] = field(default=_nothing)


class Upstream(Protocol):
    """A provider of messages."""

    async def send(self, call: Call) -> Reply:
        """Send one request. Return when the reply's headers have arrived; its bytes follow. Raises UpstreamLost."""

    async def aclose(self) -> None:
        """Release the connections."""
