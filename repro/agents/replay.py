"""The model provider `replay`: answers from a script, for tests, demonstrations and work without a key.

A script is a file of JSON lines, one for each turn of the model: `content` (text, or blocks of types `text` and
`tool_use`), and optionally `stop_reason`, `usage`, `delay_s`, or `fail`, the message of an error. A line with `match`
answers its `turn` if the last message contains the text of its `contains`. `{root}` in a tool's arguments stands for
the sandbox's folder. An agent's request without tools, such as for a title, gets a fixed text.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

from repro.system.jsonio import Json

BYTES_A_TOKEN = 4
STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "max_tokens", "refusal": "content_filter"}


@dataclass
class Script:
    """The replies of one sitting, by turn. root: the sandbox's folder."""

    lines: list[Json]
    root: str = ""

    def line(self, turn: int, last: str) -> Json:
        """Return the line for a turn. last: the text of the last message. Raises ScriptError."""
        for at, line in enumerate(self.lines):
            match = line.get("match", {})
            if match.get("turn", at) == turn and match.get("contains", "") in last:
                return line
        raise ScriptError(f"the script has no reply for turn {turn}")

    @classmethod
    def read(cls, content: bytes) -> Script:
        """Return a script file as a script."""
        return cls([json.loads(line) for line in content.splitlines() if line.strip()])


#: The script of the sitting that asks.
current: ContextVar[Script] = ContextVar("script")


class ScriptError(RuntimeError):
    """A script has no reply for a turn, or its reply is an error."""


class Replay(ModelAPI):
    """Answers a request by its turn: by the number of replies that it holds already."""

    async def count_tokens(self, *args: Any, **named: Any) -> int:
        """Return a constant: the usual counter needs a file of the network."""
        return 100

    async def count_text_tokens(self, *args: Any, **named: Any) -> int:
        """Return a constant, for the same reason."""
        return 10

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Return the script's reply. Raises ScriptError."""
        turn, script = sum(isinstance(message, ChatMessageAssistant) for message in input), current.get()
        if script.root and not tools:
            return ModelOutput.from_content(self.model_name, "Scripted title")
        line = script.line(turn, input[-1].text)
        await anyio.sleep(line.get("delay_s", 0.0))
        if "fail" in line:
            raise ScriptError(line["fail"])
        content = line["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        # A tool's name as the request shows it: an MCP client puts its server's name before it.
        shown = {tool.name.rpartition("__")[2]: tool.name for tool in reversed(tools)}
        calls = [
            ToolCall(id=f"replay_{turn}_{at}", function=shown.get(block["name"].rpartition("__")[2], block["name"]),
                     arguments={name: value.replace("{root}", script.root) if isinstance(value, str) else value
                                for name, value in block["input"].items()})
            for at, block in enumerate(blocks) if block["type"] == "tool_use"
        ]  # fmt: skip
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        message = ChatMessageAssistant(content=text, tool_calls=calls or None, source="generate", model=self.model_name)
        stop = STOPS[line.get("stop_reason", "tool_use" if calls else "end_turn")]
        choice = ChatCompletionChoice(message=message, stop_reason=stop)  # type: ignore[arg-type]
        return ModelOutput(model=self.model_name, choices=[choice], usage=_usage(line, input))


def _usage(line: Json, input: list[ChatMessage]) -> ModelUsage:
    """Return the tokens that a line names, else an estimate: a quarter of the bytes."""
    estimate = {"input_tokens": sum(len(message.text.encode()) for message in input) // BYTES_A_TOKEN,
                "output_tokens": len(json.dumps(line["content"])) // BYTES_A_TOKEN}  # fmt: skip
    usage = estimate | line.get("usage", {})
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    total = sum(filter(None, (usage["input_tokens"], usage["output_tokens"], read, written)))
    return ModelUsage(input_tokens=usage["input_tokens"], output_tokens=usage["output_tokens"], total_tokens=total,
                      input_tokens_cache_read=read, input_tokens_cache_write=written)  # fmt: skip


@modelapi(name="replay")
def replay() -> type[ModelAPI]:
    """Return the provider."""
    return Replay
