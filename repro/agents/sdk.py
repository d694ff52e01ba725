"""The agent `sdk`: our own loop on the Messages API. It asks, runs the tools that the model calls, and asks again."""

from __future__ import annotations

from typing import Any

import anthropic

from repro.agents import task as texts
from repro.agents.deadline import Deadline
from repro.agents.events import Ending, Record
from repro.agents.sdk_context import CACHE, Conversation
from repro.agents.sdk_provider import ContextFull, Failed, Provider
from repro.agents.task import Task
from repro.agents.tools import Toolbox
from repro.agents.tools_knowledge import Knowledge

GO_ON = "Your answer was cut off at the limit of output tokens. Go on from there, in smaller steps."
NOT_RUN = "not run: the answer was cut off at the limit of output tokens"
# Most replies in a row that only ask to go on: beyond these the conversation makes no progress.
MOST_PAUSES = 20
PAUSES = ("pause_turn", "compaction")


class SdkAgent:
    """One conversation, from the prompt to the model's last turn."""

    def __init__(
        self, task: Task, env: dict[str, str], deadline: Deadline, record: Record, knowledge: Knowledge | None, url: str
    ) -> None:
        self.task, self.record, self.deadline = task, record, deadline
        self.provider = Provider(url, deadline, record)
        self.tools = Toolbox(task, env, deadline, record, knowledge)
        self.conversation = Conversation(texts.prompt(task))
        record.agent_version = f"sdk, anthropic {anthropic.__version__}"
        self._cut = self._full = self._pauses = 0

    def run(self) -> Ending:
        """Run until the model ends its turn or the conversation cannot continue. Raises Stopped."""
        try:
            while True:
                message = self._ask()
                ending = self._after(message)
                if ending is not None:
                    return ending
        except Failed as failure:
            return failure.ending
        finally:
            self.tools.close()
            self.provider.client.close()

    def _ask(self) -> dict[str, Any]:
        """Return one reply; shorten the conversation and ask again if the request is too long. Raises Failed."""
        try:
            return self._request()
        except ContextFull:
            self._shorten(self.task.options.context_tokens * 2, "the request was too long")
        try:
            return self._request()
        except ContextFull as error:
            raise Failed(Ending("agent_error", "the conversation is too long for the model")) from error

    def _request(self) -> dict[str, Any]:
        options = self.task.options
        request: dict[str, Any] = {
            "model": self.task.model,
            "max_tokens": options.output_tokens,
            "system": [{"type": "text", "text": texts.system(self.task), "cache_control": CACHE}],
            "tools": self.tools.schemas(),
            "messages": self.conversation.to_send(),
        }
        if options.thinking is not None:
            request["thinking"] = options.thinking
        if options.effort:
            request["output_config"] = {"effort": options.effort}
        self.record.add("request", turn=self.record.turns + 1, messages=len(request["messages"]),
                        characters=self.conversation.characters())  # fmt: skip
        message = self.provider.ask(request)
        self.record.turns += 1
        self.record.model_seen = message.get("model", "")
        usage = message.get("usage") or {}
        self.record.used(usage)
        self.record.add("assistant", turn=self.record.turns, stop_reason=message["stop_reason"],
                        content=message["content"], usage=usage)  # fmt: skip
        return message

    def _after(self, message: dict[str, Any]) -> Ending | None:
        """Return the ending that a reply leads to, or None after adding what the model needs next."""
        reason, content = message["stop_reason"], message["content"]
        self._cut = self._cut + 1 if reason == "max_tokens" else 0
        self._full = self._full + 1 if reason == "model_context_window_exceeded" else 0
        self._pauses = self._pauses + 1 if reason in PAUSES else 0
        if content:
            self.conversation.answer(content)
        calls = [block for block in content if block["type"] == "tool_use"]
        if reason in ("end_turn", "stop_sequence"):
            return Ending("completed", f"the model ended its turn ({reason})")
        if reason == "refusal":
            return Ending("refused", _last_text(content) or "the model refused")
        if reason == "tool_use" and calls:
            self.conversation.say([self._run(block) for block in calls])
        elif reason == "max_tokens" and self._cut < 2:
            told = [_result(block["id"], NOT_RUN, is_error=True) for block in calls]
            self.conversation.say([*told, {"type": "text", "text": GO_ON}])
        elif reason == "model_context_window_exceeded" and self._full < 2:
            if not self._shorten(self.task.options.context_tokens * 2, reason):
                return Ending("agent_error", "the context is full and has no result to drop")
            told = [_result(block["id"], NOT_RUN, is_error=True) for block in calls]
            self.conversation.say([*told, {"type": "text", "text": GO_ON}])
        elif reason in PAUSES and self._pauses < MOST_PAUSES:
            self.record.add("limit", reason=reason)
        else:
            return Ending("agent_error", f"the conversation cannot continue after a reply that stopped with {reason}")
        self._keep_short(message.get("usage") or {})
        return None

    def _run(self, block: dict[str, Any]) -> dict[str, Any]:
        self.deadline.check()
        result = self.tools.call(block["name"], block["input"], block["id"])
        return _result(block["id"], result.text, is_error=result.is_error)

    def _keep_short(self, usage: dict[str, Any]) -> None:
        """Drop old results if the last request exceeded the limit."""
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        tokens = sum(usage.get(name) or 0 for name in names)
        if tokens > self.task.options.context_tokens:
            self._shorten(tokens, "over the limit of input tokens")

    def _shorten(self, tokens: int, why: str) -> bool:
        edit = self.conversation.drop_results(tokens, self.task.options.context_tokens)
        self.record.add("context_edit", why=why, **(edit or {"results_dropped": 0}))
        return edit is not None


def _result(call_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}


def _last_text(content: list[dict[str, Any]]) -> str:
    texts = [block["text"] for block in content if block["type"] == "text"]
    return " ".join(texts[-1].split())[:300] if texts else ""
