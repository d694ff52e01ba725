"""A process in the gateway's place, for tests of what an agent does: its answers are given, step by step.

`python agent_gateway.py SOCKET STEPS JOURNAL [mcp]`: STEPS is a JSON list, one step a model request, in order: a
message ({"content", "stop_reason", "usage"}), {"error": {"status", "type", "message", "headers"}}, {"broken": how many
events before the connection breaks}, {"said": type of an error within the stream} or {"hang_s"}. JOURNAL gets every
request's body as a line. With `mcp` there is a knowledge server at /mcp whose tool `echo` answers and whose tool `slow`
takes 30 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def events(step: dict[str, Any], model: str) -> list[tuple[str, dict[str, Any]]]:
    """A message as the events of a stream."""
    usage = {"input_tokens": 10, "output_tokens": 5} | step.get("usage", {})
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    found: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": message})]
    for index, block in enumerate(step["content"]):
        if block["type"] == "text":
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "tool_use":
            text = block.get("partial", json.dumps(block["input"]))
            empty = {k: v for k, v in block.items() if k != "partial"} | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": text}
        elif block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
        else:
            empty, delta = block, None
        found.append(("content_block_start", {"index": index, "content_block": empty}))
        if delta:
            found.append(("content_block_delta", {"index": index, "delta": delta}))
        if block["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            found.append(("content_block_delta", {"index": index, "delta": signed}))
        found.append(("content_block_stop", {"index": index}))
    delta = {"stop_reason": step["stop_reason"], "stop_sequence": None}
    return [*found, ("message_delta", {"delta": delta, "usage": {"output_tokens": 5}}), ("message_stop", {})]


def sse(name: str, data: dict[str, Any]) -> bytes:
    """One event on the wire."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def application(steps: list[dict[str, Any]], journal: Path, mcp: bool) -> Any:
    """The server; where the steps run out the last one is repeated."""
    pending = iter(steps)
    last = steps[-1] if steps else {}

    async def messages(request: Request) -> Response:
        body = await request.json()
        with journal.open("a") as stream:
            stream.write(json.dumps(body) + "\n")
        step = next(pending, last)
        if "error" in step:
            error = step["error"]
            told = {"type": "error", "error": {"type": error["type"], "message": error["message"]}}
            return JSONResponse(told, error["status"], headers=error.get("headers"))
        if "hang_s" in step:
            await asyncio.sleep(step["hang_s"])

        async def body_of() -> AsyncIterator[bytes]:
            if "said" in step:
                yield sse("error", {"error": {"type": step["said"], "message": "said within the stream"}})
                return
            usual = {"content": [{"type": "text", "text": "never seen"}], "stop_reason": "end_turn"}
            whole = events(step if "content" in step else usual, body["model"])
            for number, (name, data) in enumerate(whole):
                if number == step.get("broken"):
                    if step.get("quietly"):
                        return
                    raise ConnectionError("as the test wants it")
                yield sse(name, data)

        return StreamingResponse(body_of(), media_type="text/event-stream")

    routes = [Route("/v1/messages", messages, methods=["POST"])]
    if not mcp:
        return Starlette(routes=routes)
    from mcp.server import MCPServer

    server = MCPServer("knowledge")

    @server.tool()
    def echo(text: str, times: int = 1) -> str:
        """Says it again."""
        if text == "raise":
            raise ValueError("as asked")
        return text * times

    @server.tool()
    async def slow(text: str) -> str:
        """Takes its time."""
        await asyncio.sleep(30)
        return text

    app = server.streamable_http_app(stateless_http=True)
    app.router.routes.extend(routes)
    return app


if __name__ == "__main__":
    where, told, journal, *rest = sys.argv[1:]
    served = application(json.loads(Path(told).read_text()), Path(journal), "mcp" in rest)
    uvicorn.run(served, uds=where, log_level="critical", timeout_graceful_shutdown=1)
