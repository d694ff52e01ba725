"""Server-sent events of the Messages API: splits a stream into events, and assembles a message from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

END = re.compile(rb"\r?\n\r?\n")
CHUNK = 48


class Splitter:
    """Splits bytes into whole events as they arrive; each keeps its empty line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that are complete now."""
        self._rest += data
        events, start = [], 0
        for end in END.finditer(self._rest):
            events.append(self._rest[start : end.end()])
            start = end.end()
        self._rest = self._rest[start:]
        return events


def parse(event: bytes) -> dict[str, Any]:
    """Return the data of one event, or an empty object for one without data."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    try:
        data = json.loads(b"\n".join(lines)) if lines else {}
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def render(kind: str, **data: Any) -> bytes:
    """Return one event as bytes."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


class Assembler:
    """Assembles a message from its events.

    content, usage, stop_reason, model: the parts received so far. complete: whether the message's end was received.
    error: the type of an error event, or "".
    """

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.stop_reason: str | None = None
        self.model = self.message_id = self.error = ""
        self.complete = False
        self._inputs: dict[int, str] = {}

    def feed(self, data: dict[str, Any]) -> None:
        """Take one event's data; unknown kinds are ignored."""
        kind = data.get("type")
        if kind == "message_start":
            self.whole(data.get("message") or {}, complete=False)
        elif kind == "content_block_start":
            self.content.append(dict(data.get("content_block") or {}))
        elif kind == "content_block_delta" and self.content:
            self._delta(data.get("delta") or {})
        elif kind == "content_block_stop" and self.content:
            self._close()
        elif kind == "message_delta":
            self.stop_reason = (data.get("delta") or {}).get("stop_reason") or self.stop_reason
            self.usage |= {k: v for k, v in (data.get("usage") or {}).items() if v is not None}
        elif kind == "message_stop":
            self.complete = True
        elif kind == "error":
            self.error = str((data.get("error") or {}).get("type") or "error")

    def whole(self, message: dict[str, Any], *, complete: bool = True) -> None:
        """Take a message that arrived in one piece."""
        self.content = list(message.get("content") or [])
        self.usage = {k: v for k, v in (message.get("usage") or {}).items() if v is not None}
        self.stop_reason = message.get("stop_reason")
        self.model, self.message_id = str(message.get("model") or ""), str(message.get("id") or "")
        self.complete = complete

    def _delta(self, delta: dict[str, Any]) -> None:
        block, index = self.content[-1], len(self.content) - 1
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = (block.get(name) or "") + delta[name]
        if isinstance(delta.get("partial_json"), str):
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        if delta.get("type") == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        if delta.get("type") == "compaction_delta":
            block |= {name: value for name, value in delta.items() if name != "type" and value is not None}

    def _close(self) -> None:
        text = self._inputs.pop(len(self.content) - 1, "")
        if text:
            try:
                self.content[-1]["input"] = json.loads(text)
            except ValueError:
                self.content[-1]["input_text"] = text

    def record(self) -> dict[str, Any]:
        """Return the part of the answer that the journal keeps."""
        for text in self._inputs.values():
            self.content[-1]["input_text"] = text
        return {
            "id": self.message_id, "model": self.model, "content": self.content, "stop_reason": self.stop_reason,
            "usage": self.usage,
        }  # fmt: skip


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block at its start, and the deltas that fill it."""
    kind = block.get("type")

    def cut(text: str, delta: str, name: str) -> list[dict[str, Any]]:
        return [{"type": delta, name: text[i : i + CHUNK]} for i in range(0, len(text), CHUNK)]

    if kind == "text":
        return block | {"text": ""}, cut(block.get("text") or "", "text_delta", "text")
    if kind == "thinking":
        deltas = cut(block.get("thinking") or "", "thinking_delta", "thinking")
        signature = [{"type": "signature_delta", "signature": block.get("signature") or ""}]
        return block | {"thinking": "", "signature": ""}, deltas + signature
    if kind == "tool_use":
        text = json.dumps(block.get("input") or {})
        return block | {"input": {}}, cut(text, "input_json_delta", "partial_json")
    return block, []


def events(message: dict[str, Any]) -> Iterator[bytes]:
    """Yield a whole message as the events of the API."""
    usage = message["usage"]
    opening = message | {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | {"output_tokens": 1},
    }
    yield render("message_start", message=opening)
    yield render("ping")
    for index, block in enumerate(message["content"]):
        opened, deltas = _pieces(block)
        yield render("content_block_start", index=index, content_block=opened)
        for delta in deltas:
            yield render("content_block_delta", index=index, delta=delta)
        yield render("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    yield render("message_delta", delta=ending, usage={"output_tokens": usage.get("output_tokens", 0)})
    yield render("message_stop")
