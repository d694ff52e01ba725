"""The three paths of the gateway. Requests to other paths are refused and journaled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from repro.gateway.admission import LARGEST_BODY, LARGEST_CALL, Full, Room
from repro.gateway.budgets import Budgets
from repro.gateway.journal import Journal
from repro.gateway.messages import Messages
from repro.gateway.refusal import Refusal, brief

if TYPE_CHECKING:
    from repro.gateway.mcp import Mcp

MESSAGES = ("/v1/messages", "/v1/messages/count_tokens")
MCP = "/mcp"
# Most values (objects, lists and their parts) in one body.
MOST_VALUES = 200_000


class App:
    """The ASGI application of one job. mcp: None in an arm without knowledge."""

    def __init__(self, messages: Messages, mcp: Mcp | None, budgets: Budgets, journal: Journal) -> None:
        self._messages, self._mcp, self._budgets, self._journal = messages, mcp, budgets, journal
        self.room, self._calls = Room(), Room()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve HTTP requests, and ignore other scopes."""
        if scope["type"] != "http":
            return
        self._budgets.begin()
        path = scope["path"]
        consults = path == MCP and self._mcp is not None
        refusal = self._unknown(scope)
        room, largest = (self._calls, LARGEST_CALL) if consults else (self.room, LARGEST_BODY)
        size = _announced(scope, largest)
        if size > largest:
            kind = "request_too_large"
            refusal = refusal or Refusal("body_too_large", f"the body has over {largest} bytes", 413, kind)
        if refusal:
            entry = {"path": brief(path), "id": self._journal.request_id(), "method": brief(scope["method"], 16)}
            await self._messages.refuse(refusal, entry)(scope, receive, send)
            return
        try:
            async with room.held(size):
                await self._admitted(scope, receive, send, largest)
        except Full:
            entry = {"path": path, "id": self._journal.request_id()}
            busy = self._messages.refuse(Refusal("busy", "too many requests wait", 529, "overloaded_error"), entry)
            busy.headers.update({"x-should-retry": "true", "retry-after": "1"})
            await busy(scope, receive, send)

    def _unknown(self, scope: Scope) -> Refusal | None:
        path, method = scope["path"], scope["method"]
        if path not in (*MESSAGES, MCP) or (path == MCP and self._mcp is None):
            return Refusal("path_denied", f"there is no {brief(path)} here", 404, "not_found_error")
        if method != "POST":
            return Refusal("method_denied", f"{path} takes POST, not {brief(method, 16)}", 405)
        if scope["query_string"] not in (b"", b"beta=true"):
            return Refusal("query_denied", "the only query allowed is ?beta=true")
        if Headers(scope=scope).get("content-encoding", "identity") != "identity":
            return Refusal("body_invalid", "the body is compressed", 415)
        return None

    async def _admitted(self, scope: Scope, receive: Receive, send: Send, largest: int) -> None:
        request = Request(scope, receive)
        entry: dict[str, Any] = {"path": scope["path"], "id": self._journal.request_id()}
        try:
            body = await _body(request, largest)
        except ClientDisconnect:
            self._journal.write("request", entry | {"status": 0, "decision": "denied", "code": "client_gone"})
            return
        response: Response
        if body is None:
            refusal = Refusal("body_too_large", f"the body has over {largest} bytes", 413, "request_too_large")
            response = self._messages.refuse(refusal, entry)
        elif crowded(body):
            refusal = Refusal("body_crowded", f"the body holds over {MOST_VALUES} values", 413, "request_too_large")
            response = self._messages.refuse(refusal, entry)
        elif scope["path"] == MCP:
            assert self._mcp is not None
            status, method = await self._mcp.handle(scope, body, receive, send)
            self._journal.write("request", entry | {"status": status, "decision": "allowed", "rpc": method})
            return
        else:
            headers = {name: value for name, value in request.headers.items() if name.startswith("anthropic-")}
            beta = scope["query_string"] == b"beta=true"
            response = await self._messages.handle(entry, body, headers, beta=beta)
        await response(scope, receive, send)


def crowded(raw: bytes) -> bool:
    """Return whether a body holds more values than any honest one, without parsing it.

    A value of three bytes takes seventy once it is parsed.
    """
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MOST_VALUES:
        return True
    outside = plain.split(b'"')[::2]
    return sum(text.count(b",") + text.count(b"[") + text.count(b"{") for text in outside) > MOST_VALUES


def _announced(scope: Scope, largest: int) -> int:
    """Return the announced size of a body, or `largest` without one."""
    told = Headers(scope=scope).get("content-length", "")
    return int(told) if told.isdigit() and len(told) < 16 else largest


async def _body(request: Request, largest: int) -> bytes | None:
    """Return the body, or None if it is too large."""
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > largest:
            return None
        parts.append(chunk)
    return b"".join(parts)
