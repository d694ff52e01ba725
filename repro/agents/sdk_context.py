"""The conversation of our own agent: the messages to send, cache marks, and dropping old results when it grows long."""

from __future__ import annotations

import copy
from typing import Any

CACHE = {"type": "ephemeral"}
# The last results, which the model works with, are kept whatever their size.
KEPT_RESULTS = 4
# Shorter results are not worth dropping.
SMALL_CHARACTERS = 500
# Share of the limit in use after dropping results. Each edit empties the cache, so edits should be rare.
TARGET = 0.6
DROPPED = "[an old result of {} characters, removed to make room; call the tool again if it is needed]"

Message = dict[str, Any]


class Conversation:
    """Messages in the form of the Messages API. Every tool_use keeps its tool_result; replies go back unchanged."""

    def __init__(self, prompt: str) -> None:
        self.messages: list[Message] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]

    def answer(self, content: list[dict[str, Any]]) -> None:
        """Append the model's reply, thinking included."""
        self.messages.append({"role": "assistant", "content": content})

    def say(self, content: list[dict[str, Any]]) -> None:
        """Append a user message: tool results, then text."""
        self.messages.append({"role": "user", "content": content})

    def to_send(self) -> list[Message]:
        """Return a copy with cache marks at the last two user messages: the older is read, the newer written."""
        sent = copy.deepcopy(self.messages)
        for message in [each for each in sent if each["role"] == "user"][-2:]:
            message["content"][-1]["cache_control"] = CACHE
        return sent

    def characters(self) -> int:
        """Return the approximate length of the conversation."""
        return sum(len(str(block)) for message in self.messages for block in message["content"])

    def drop_results(self, tokens: int, limit: int) -> dict[str, Any] | None:
        """Replace the oldest tool results by a note until the estimate is under the target.

        tokens: input tokens of the conversation now. Return what was done, or None if nothing can be dropped.
        """
        before = self.characters()
        surplus = (tokens - TARGET * limit) * before / max(tokens, 1)
        results = [b for m in self.messages for b in m["content"] if m["role"] == "user" and b["type"] == "tool_result"]
        dropped = removed = 0
        for block in results[:-KEPT_RESULTS]:
            size = len(str(block["content"]))
            if size >= SMALL_CHARACTERS and removed < surplus:
                block["content"] = [{"type": "text", "text": DROPPED.format(size)}]
                dropped, removed = dropped + 1, removed + size
        if not dropped:
            return None
        return {"input_tokens": tokens, "limit": limit, "results_dropped": dropped, "characters_removed": removed}
