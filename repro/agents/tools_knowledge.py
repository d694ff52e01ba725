"""The knowledge base's tools, reached over MCP through the gateway.

Each call has its own connection. So the next call reaches a server that was away for a while, and a server that hangs
costs one call its time limit.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp
from mcp.shared.exceptions import MCPError

from repro.agents.tools_result import Result, shorten

SERVER = "knowledge"
PREFIX = f"mcp__{SERVER}__"
# A service behind a tool may report its own failure as plain text.
SOFT_ERROR = re.compile(r"\b(API error:|rate limit|insufficient credits|timed out|connection error)", re.IGNORECASE)
FAILURES = (OSError, MCPError, httpx2.HTTPError, TimeoutError, RuntimeError, ValueError)


class KnowledgeError(Exception):
    """The server cannot be reached or does not answer in MCP."""


@dataclass(frozen=True)
class Spec:
    """One tool as the server describes it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class Knowledge:
    """The tools at `url`. timeout_s bounds one call with its connection."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self.timeout_s = url, timeout_s
        self.specs: list[Spec] = []

    def discover(self, timeout_s: float) -> list[str]:
        """Fetch the list of tools; return their names. Raises KnowledgeError."""
        try:
            self.specs = asyncio.run(asyncio.wait_for(self._list(), timeout_s))
        except ExceptionGroup as group:
            raise KnowledgeError(_reason(group)) from group
        except FAILURES as error:
            raise KnowledgeError(_reason(error)) from error
        return [spec.name for spec in self.specs]

    def names(self) -> set[str]:
        """Return the names that the model uses."""
        return {PREFIX + spec.name for spec in self.specs}

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools in the form of the Messages API, each schema unchanged."""
        return [
            {"name": PREFIX + s.name, "description": s.description, "input_schema": s.input_schema} for s in self.specs
        ]

    def call(self, name: str, given: dict[str, Any], timeout_s: float) -> Result:
        """Call a tool by the model's name for it. A failure of the server is returned as a result."""
        try:
            return asyncio.run(asyncio.wait_for(self._call(name.removeprefix(PREFIX), given), timeout_s))
        except TimeoutError:
            return Result(f"the tool did not answer within {timeout_s:.0f} s", is_error=True)
        except ExceptionGroup as group:
            return Result(f"the tool failed: {_reason(group)}", is_error=True)
        except FAILURES as error:
            return Result(f"the tool failed: {_reason(error)}", is_error=True)

    async def _list(self) -> list[Spec]:
        async with mcp.Client(self.url, cache=None) as client:
            specs, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                specs += [Spec(each.name, each.description or "", each.input_schema) for each in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return specs

    async def _call(self, name: str, given: dict[str, Any]) -> Result:
        async with mcp.Client(self.url, cache=None) as client:
            answer = await client.call_tool(name, given)
        parts = []
        for block in answer.content:
            text = getattr(block, "text", None)
            parts.append(text if isinstance(text, str) else f"[{block.type} left out]")
        text = "\n".join(parts)
        failed = bool(answer.is_error)
        return Result(shorten(text) or "[no text]", failed, soft_error=not failed and bool(SOFT_ERROR.search(text)))


def _reason(error: BaseException) -> str:
    """Return the first cause in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")
