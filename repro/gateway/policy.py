"""Rules for the bodies of requests.

A provider can run tools of its own, with access to the web, and fetch data that a body points to. Only a gateway that
reads bodies can prevent that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from repro.gateway.config import KB_TOOLS, Config
from repro.gateway.refusal import Refusal, brief

FIELDS = frozenset(
    "model max_tokens messages system tools tool_choice stream stop_sequences metadata thinking output_config "
    "cache_control context_management temperature top_p top_k service_tier speed".split()
)
# Fields that decide the price of a token: only these values pass, so that the meter's price table applies.
PLAIN = {"service_tier": ("auto", "standard_only"), "speed": ("standard", None)}
TOOL_TYPE = re.compile(r"(bash|text_editor|memory)_[0-9]{8}")
TOOL_FIELDS = frozenset(
    "type name description input_schema cache_control strict eager_input_streaming input_examples defer_loading "
    "allowed_callers max_characters".split()
)
BLOCKS = frozenset(
    "text image document thinking redacted_thinking tool_use tool_result tool_reference compaction".split()
)
SOURCES = frozenset(("base64", "text", "content"))
EDIT_TYPE = re.compile(r"(clear_tool_uses|clear_thinking|compact)_[0-9]{8}")
ROLES = ("user", "assistant", "system")
DEEPEST = 64

BETAS = re.compile(
    r"(claude-code|interleaved-thinking|context-management|prompt-caching|prompt-caching-scope|extended-cache-ttl|"
    r"compact|effort|task-budgets|token-efficient-tools|fine-grained-tool-streaming|output-128k|structured-outputs|"
    r"model-context-window-exceeded|thinking-token-count|thinking-display-updates|token-counting|"
    r"redact-thinking)-\d{4}-?\d{2}-?\d{2}"
)
VERSION = re.compile(r"\d{4}-\d{2}-\d{2}")
DEFAULT_VERSION = "2023-06-01"


def headers(told: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the headers that go on to the provider, and the betas that were removed."""
    version = told.get("anthropic-version", "")
    passed = {
        "anthropic-version": version if VERSION.fullmatch(version) else DEFAULT_VERSION,
        "content-type": "application/json",
    }
    betas = [beta.strip() for beta in told.get("anthropic-beta", "").split(",") if beta.strip()]
    kept = [beta for beta in betas if BETAS.fullmatch(beta)]
    if kept:
        passed["anthropic-beta"] = ",".join(kept)
    return passed, [brief(beta, 60) for beta in betas if beta not in kept]


def depth_exceeded(body: Any) -> bool:
    """Return whether a body is nested deeper than any honest one, without recursion."""
    level = [body]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def tool_names(body: dict[str, Any]) -> set[str]:
    """Return the names of tools that the model sees, without a client's prefix of the server's name.

    Deferred tools are not seen.
    """
    tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict) and not tool.get("defer_loading")]
    return {str(tool.get("name", "")).rpartition("__")[2] for tool in tools}


@dataclass
class Policy:
    """The rules of one job. listed: whether a request has shown the expected tools to the model."""

    config: Config
    listed: bool = field(default=False)

    def refusal(self, body: Any, *, counting: bool) -> Refusal | None:
        """Return why a body may not pass, or None. counting: it requests a token count, not a message."""
        if not isinstance(body, dict):
            return Refusal("body_invalid", "the body is not a JSON object")
        if depth_exceeded(body):
            return Refusal("body_invalid", f"the body is nested deeper than {DEEPEST} levels")
        checks: tuple[Callable[[dict[str, Any]], Iterator[Refusal]], ...] = (
            self._model, self._fields, self._tools, self._edits, self._messages, self._knowledge,
        )  # fmt: skip
        for check in checks:
            for refusal in check(body):
                return refusal
        if not counting:
            self.listed = self.listed or bool(self.config.shown_tools and body.get("tools"))
            if not isinstance(body.get("max_tokens"), int) or isinstance(body["max_tokens"], bool):
                return Refusal("body_invalid", "max_tokens is not a whole number")
        return None

    def edit(self, body: dict[str, Any]) -> list[str]:
        """Lower what exceeds the rules but can pass; return the changes."""
        told = body.get("max_tokens")
        if not isinstance(told, int) or told <= self.config.max_tokens:
            return []
        body["max_tokens"] = self.config.max_tokens
        return [f"max_tokens {told} -> {self.config.max_tokens}"]

    def _model(self, body: dict[str, Any]) -> Iterator[Refusal]:
        if body.get("model") != self.config.model:
            detail = f"this run uses {self.config.model}, not {brief(body.get('model'))}"
            yield Refusal("model_denied", detail, 403, "permission_error")

    def _fields(self, body: dict[str, Any]) -> Iterator[Refusal]:
        for name in sorted(set(body) - FIELDS):
            yield Refusal("field_denied", f"the field {brief(name)} is not allowed here")
        for name, values in PLAIN.items():
            if name in body and body[name] not in values:
                yield Refusal("field_denied", f"{name} must keep its default value")
        if not isinstance(body.get("stream", False), bool):
            yield Refusal("body_invalid", "stream is neither true nor false")

    def _tools(self, body: dict[str, Any]) -> Iterator[Refusal]:
        tools = body.get("tools")
        if tools is None:
            return
        if not isinstance(tools, list):
            yield Refusal("body_invalid", "tools is not a list")
            return
        for tool in tools:
            kind = tool.get("type") if isinstance(tool, dict) else tool
            if not isinstance(tool, dict) or (kind not in (None, "custom") and not TOOL_TYPE.fullmatch(str(kind))):
                yield Refusal("tool_denied", f"only tools that the client runs are allowed, not {brief(kind)}")
            elif unknown := sorted(set(tool) - TOOL_FIELDS):
                yield Refusal("tool_denied", f"a tool has the field {brief(unknown[0])}")
            elif tool.get("allowed_callers") not in (None, ["direct"]):
                yield Refusal("tool_denied", "only the model itself may call tools")

    def _edits(self, body: dict[str, Any]) -> Iterator[Refusal]:
        management = body.get("context_management")
        if management is None:
            return
        edits = management.get("edits", []) if isinstance(management, dict) else None
        if edits is None or set(management) - {"edits"} or not isinstance(edits, list):
            yield Refusal("field_denied", "context_management may hold edits only")
            return
        for edit in edits:
            kind = edit.get("type") if isinstance(edit, dict) else edit
            if not EDIT_TYPE.fullmatch(str(kind)):
                yield Refusal("field_denied", f"the context edit {brief(kind)} is not allowed here")

    def _messages(self, body: dict[str, Any]) -> Iterator[Refusal]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            yield Refusal("body_invalid", "messages is not a list, or is empty")
            return
        yield from _blocks(body.get("system"), "system")
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in ROLES:
                yield Refusal("body_invalid", f"a message has none of the roles {', '.join(ROLES)}")
            elif unknown := sorted(set(message) - {"role", "content"}):
                yield Refusal("field_denied", f"a message has the field {brief(unknown[0])}")
            else:
                yield from _blocks(message.get("content"), "a message")

    def _knowledge(self, body: dict[str, Any]) -> Iterator[Refusal]:
        names = tool_names(body | {"tools": [t | {"defer_loading": False} for t in body.get("tools") or []]})
        if self.config.knowledge.kind == "none" and (known := sorted(names & set(KB_TOOLS))):
            detail = f"this arm has no knowledge base, so no tool may be called {known[0]}"
            yield Refusal("kb_in_baseline", detail, 403, "permission_error")
        if self.listed or not body.get("tools"):
            return
        if missing := [name for name in self.config.shown_tools if name not in tool_names(body)]:
            detail = f"the model would not see {len(missing)} of the knowledge tools: {', '.join(missing)}"
            yield Refusal("kb_tools_missing", detail, 403, "permission_error")


def _blocks(content: Any, where: str) -> Iterator[Refusal]:
    """Yield refusals for a list of content blocks, at any depth. A tool's input is data and is not searched."""
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Refusal("body_invalid", f"the content of {where} is neither text nor a list")
        return
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else block
        if not isinstance(block, dict) or str(kind) not in BLOCKS:
            yield Refusal("block_denied", f"{where} holds a block of type {brief(kind)}")
            continue
        source = block.get("source")
        if source is not None or kind in ("image", "document"):
            origin = source.get("type") if isinstance(source, dict) else source
            if not isinstance(source, dict) or str(origin) not in SOURCES or {"url", "file_id"} & set(source):
                yield Refusal("source_denied", f"{where} points to a source of type {brief(origin)}; send the data")
                continue
            if origin == "content":
                yield from _blocks(source.get("content"), f"a {kind}")
        if kind == "tool_result":
            yield from _blocks(block.get("content"), "a tool_result")
