"""The log of an agent (events.jsonl, written as it works) and the counts of agent-outcome.json."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.system import jsonio

EVENTS, OUTCOME, TRANSCRIPT = "events.jsonl", "agent-outcome.json", "transcript"
SCHEMA_VERSION = 1
STATUSES = frozenset("completed budget refused gave_up agent_error provider_error infra_error timeout".split())
USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(frozen=True)
class Ending:
    """How an agent ended. status: one of STATUSES. detail: one line for a reader."""

    status: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"no status {self.status!r}")


class Record:
    """The log and the counts of one agent. Any thread may add to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns = 0
        self.tool_calls: Counter[str] = Counter()
        self.usage: Counter[str] = Counter()
        self.agent_version = ""
        self.model_seen = ""
        self.preflight: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add(self, kind: str, **fields: Any) -> None:
        """Append one line, unless `finish` was called. Raises OSError if it cannot be written."""
        line = jsonio.dumps({"t": round(time.time(), 3), "kind": kind, **fields})
        with self._lock:
            if not self._closed:
                with (self.folder / EVENTS).open("a") as stream:
                    stream.write(line + "\n")

    def used(self, usage: dict[str, Any]) -> None:
        """Add the tokens of one reply as the agent saw them."""
        for name in USAGE:
            value = usage.get(name)
            if isinstance(value, int):
                self.usage[name] += value

    def called(self, tool: str) -> None:
        """Count one call of a tool."""
        self.tool_calls[tool] += 1

    def finish(self, ending: Ending, wall_s: float) -> None:
        """Write the last event and agent-outcome.json, atomically. Raises OSError."""
        self.add("end", status=ending.status, detail=ending.detail)
        with self._lock:
            self._closed = True
        outcome = {
            "schema_version": SCHEMA_VERSION,
            "status": ending.status,
            "detail": ending.detail,
            "turns": self.turns,
            "tool_calls": dict(self.tool_calls),
            "wall_s": round(wall_s, 3),
            "usage": dict(self.usage),
            "agent_version": self.agent_version,
            "model_seen": self.model_seen,
            "preflight": self.preflight,
        }
        jsonio.write(self.folder / OUTCOME, outcome)


def recorded_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the tool calls (name, input) of a recording, in order.

    text: events.jsonl of an earlier run, or a replay script (one reply of a model a line). Raises ValueError.
    """
    calls = []
    for line in filter(None, text.splitlines()):
        entry = json.loads(line)
        if "kind" in entry:
            blocks = [entry] if entry["kind"] == "tool_use" else []
        else:
            blocks = [b for b in entry.get("content", []) if isinstance(b, dict) and b.get("type") == "tool_use"]
        calls += [(str(block["name"]), dict(block["input"])) for block in blocks]
    return calls
