"""What an upstream is: it takes a call and answers with a status, headers and bytes as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from repro.errors import ReproError


class UpstreamLost(ReproError):
    """The provider could not be reached, or went away before its answer was whole. code: a word for the meter."""

    def __init__(self, code: str, why: str = "") -> None:
        self.code = code
        super().__init__("the provider's answer was lost", why)

    @property
    def told(self) -> str:
        """The same for the agent, with the code that says whose fault it is."""
        return f"gateway: {self} [upstream:{self.code}]"


@dataclass(frozen=True)
class Call:
    """One request as it goes to the provider. path: /v1/messages or /v1/messages/count_tokens. beta: it was asked for
    with `?beta=true`."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    beta: bool = False

    @property
    def streams(self) -> bool:
        """Whether the answer is to come as events."""
        return bool(self.body.get("stream")) and self.path == "/v1/messages"


async def _nothing() -> None:
    return None


@dataclass
class Reply:
    """An answer under way. chunks raises UpstreamLost where it breaks off. close ends it, whole or not."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]] = field(default=_nothing)


class Upstream(Protocol):
    """A provider of messages."""

    async def send(self, call: Call) -> Reply:
        """Sends one request; the reply's headers have come, its bytes come after. Raises UpstreamLost."""

    async def aclose(self) -> None:
        """Gives connections back."""
