"""Turns Claude Code's stream of events, one JSON object a line, into our log and counts."""

from __future__ import annotations

import json
from typing import Any

from repro.agents.events import Record
from repro.agents.tools_knowledge import PREFIX, SERVER, SOFT_ERROR

LONGEST_TEXT = 30_000


class Lines:
    """Splits a stream of bytes into lines of any length."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        self._rest += chunk
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in chunk else [bytes(self._rest)]
        self._rest = bytearray(rest)
        return whole

    def end(self) -> list[bytes]:
        """Return the rest when the stream ends."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() else []


class Stream:
    """The CLI's events so far.

    init: its description of itself, None before it arrived. result: its last event, None if there was none. A message
    arrives as one event for each content block, with the same id and usage each time, so usage is kept by id.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.init: dict[str, Any] | None = None
        self.result: dict[str, Any] | None = None
        self._usage: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}

    def line(self, line: bytes) -> None:
        """Take one line. Lines that are no events are left out."""
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            return
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init":
            self.init = event
            self.record.agent_version = f"claude-code {event.get('claude_code_version', '')}".strip()
        elif kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            self._user(event)
        elif kind == "result":
            self.result = event

    def connected(self) -> str:
        """Return the state of the knowledge server as the CLI sees it; "" if it lists none."""
        servers = (self.init or {}).get("mcp_servers") or []
        return next((str(each.get("status", "")) for each in servers if each.get("name") == SERVER), "")

    def tools(self) -> list[str]:
        """Return the knowledge tools that the model sees, by their own names."""
        names = (self.init or {}).get("tools") or []
        return sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))

    def settle(self) -> None:
        """Add the tokens to the record: the CLI's own sum if there is one, else the last usage of each message."""
        total = (self.result or {}).get("usage")
        for usage in [total] if isinstance(total, dict) else list(self._usage.values()):
            self.record.used(usage)

    def _assistant(self, event: dict[str, Any]) -> None:
        message = event.get("message") or {}
        name = str(message.get("id") or event.get("uuid") or "")
        if name not in self._usage and event.get("parent_tool_use_id") is None:
            self.record.turns += 1
        if name not in self._usage or message.get("usage"):
            self._usage[name] = message.get("usage") or {}
        self.record.model_seen = str(message.get("model") or self.record.model_seen)
        content = [block for block in message.get("content") or [] if isinstance(block, dict)]
        self.record.add("assistant", turn=self.record.turns, message=name, stop_reason=message.get("stop_reason"),
                        content=content, parent=event.get("parent_tool_use_id"))  # fmt: skip
        for block in content:
            if block.get("type") == "tool_use":
                tool, call = str(block.get("name")), str(block.get("id"))
                self._names[call] = tool
                self.record.called(tool)
                self.record.add("tool_use", id=call, name=tool, input=block.get("input"))

    def _user(self, event: dict[str, Any]) -> None:
        content = (event.get("message") or {}).get("content")
        for block in content if isinstance(content, list) else []:
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            call = str(block.get("tool_use_id"))
            name, text, failed = self._names.get(call, ""), _text(block.get("content")), bool(block.get("is_error"))
            if name.startswith(PREFIX):
                soft = not failed and bool(SOFT_ERROR.search(text))
                self.record.add("kb", id=call, name=name, is_error=failed, soft_error=soft, characters=len(text))
            self.record.add("tool_result", id=call, name=name, text=text[:LONGEST_TEXT], is_error=failed)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [str(each.get("text", "")) for each in content or [] if isinstance(each, dict)]
    return "\n".join(parts)
