"""/mcp: the knowledge tools over MCP's streamable HTTP, one request at a time, without sessions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message, Receive, Scope, Send

from repro.gateway import knowledge
from repro.gateway.admission import LARGEST_CALL
from repro.gateway.budgets import Budgets
from repro.gateway.config import Config
from repro.gateway.journal import Journal, short
from repro.gateway.knowledge import Knowledge
from repro.gateway.meter import Meter
from repro.gateway.refusal import brief

NAME = "knowledge"


def _text(text: str, *, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


class Mcp:
    """The MCP server of one job."""

    def __init__(self, config: Config, base: Knowledge, meter: Meter, budgets: Budgets, journal: Journal) -> None:
        self._config, self._base, self._meter, self._budgets, self._journal = config, base, meter, budgets, journal
        self._under_way = 0
        server: Server[Any] = Server(NAME, on_list_tools=self._list, on_call_tool=self._call)
        self._manager = StreamableHTTPSessionManager(
            server, stateless=True, json_response=True, max_request_body_size=LARGEST_CALL
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the server while the block lasts."""
        async with self._manager.run():
            yield

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._base.tools)

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        entry: dict[str, Any] = {"tool": brief(params.name), "arguments": short(arguments)}
        if refusal := self._budgets.consult(self._under_way):
            self._meter.denied[refusal.code] += 1
            self._journal.write("kb", entry | {"decision": "denied", "code": refusal.code, "error": True})
            self._meter.save()
            return _text(refusal.detail, is_error=True)
        self._under_way += 1
        try:
            answer, latency_s = await knowledge.timed(self._base, params.name, arguments, self._config.knowledge.call_s)
        finally:
            self._under_way -= 1
        self._meter.consult(hits=len(answer.hits), latency_s=latency_s, failed=answer.failed)
        entry |= {
            "decision": "allowed", "hits": len(answer.hits), "pages": list(answer.hits),
            "latency_s": round(latency_s, 4),
            "error": answer.failed, "text": answer.text,
        }  # fmt: skip
        self._journal.write("kb", entry)
        self._meter.save()
        return _text(answer.text, is_error=answer.is_error)

    async def handle(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> tuple[int, str]:
        """Answer one POST whose body has been read; return the status and the method called."""
        try:
            told = json.loads(body)
            method = brief(told.get("method")) if isinstance(told, dict) else "batch"
        except (ValueError, RecursionError):
            method = "unreadable"
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self._manager.handle_request(scope, _again(body, receive), watched)
        return status, method


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives a body again, and then waits for the client to disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return messages.pop() if messages else await receive()

    return read
