"""The script of a replay: a model's replies, turn by turn, and failures of the provider.

It has one JSON object a line. A line with `content` is the reply of a turn. A request's turn is the number of its
assistant messages; a reply's turn is `match.turn`, by default the number of replies before it. `match.contains` is a
text that the last message must contain; the first matching line of the turn is used.

A line without `content` holds failures before the next reply: `error` {"status", "retry_after", "times"},
`disconnect_after` (events, with `times`) and `delay_s`. A reply's own line may hold them too. Strict mode compares
`match.sha256` and `match.tail`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.errors import UsageError
from repro.system import jsonio

FAULTS = ("error", "disconnect_after", "delay_s")
LINE = frozenset(("match", "content", "stop_reason", "usage", "times", *FAULTS))
PATHS = re.compile(r"(?:/[\w.+@-]+){2,}/?")
# Measured numbers, addresses and long ids differ between runs.
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:[.,:]\d+)+(?:e[+-]?\d+)?|0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b")
IDS = ("id", "tool_use_id", "cache_control", "signature", "data", "caller")


@dataclass
class Fault:
    """A failure that occurs `times` times."""

    kind: str
    value: Any
    times: int = 1


@dataclass
class Answer:
    """A line with content."""

    line: int
    turn: int
    content: list[dict[str, Any]]
    stop_reason: str
    usage: dict[str, Any]
    match: dict[str, Any]
    faults: list[Fault] = field(default_factory=list)


def turn(body: dict[str, Any]) -> int:
    """Return the turn of a request: the number of its assistant messages."""
    return sum(1 for message in body.get("messages", []) if message.get("role") == "assistant")


def canonical(value: Any) -> Any:
    """Return messages without parts that differ between equal runs: ids, cache marks, paths, measured numbers."""
    if isinstance(value, str):
        return NUMBERS.sub("<n>", PATHS.sub("<path>", value))
    if isinstance(value, dict):
        kept = {k: canonical(v) for k, v in value.items() if k not in IDS}
        if kept.get("type") == "text" and set(kept) == {"type", "text"}:
            return kept["text"]
        return kept
    if isinstance(value, list):
        inner = [canonical(part) for part in value]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], str) else inner
    return value


def key(body: dict[str, Any]) -> dict[str, Any]:
    """Return what strict mode compares: the turn, a hash of all messages, and the messages since the last reply."""
    messages = [canonical(message) for message in body.get("messages", [])]
    said = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    text = json.dumps(messages, sort_keys=True)
    tail = messages[said[-1] + 1 :] if said else messages
    return {"turn": len(said), "sha256": hashlib.sha256(text.encode()).hexdigest(), "tail": tail}


def difference(expected: dict[str, Any], got: dict[str, Any]) -> str:
    """Return a diff of the new messages of a script and a request."""
    before, after = (json.dumps(k.get("tail"), indent=1, sort_keys=True).splitlines() for k in (expected, got))
    lines = list(difflib.unified_diff(before, after, "script", "request", lineterm="", n=1))
    return "\n".join(lines[:60]) or "the new messages are equal, so an earlier one differs"


def _faults(told: dict[str, Any]) -> list[Fault]:
    found = []
    for kind in FAULTS:
        if kind in told:
            value = told[kind]
            times = value.get("times", 1) if isinstance(value, dict) else told.get("times", 1)
            found.append(Fault(kind, value, int(times)))
    return found


def load(path: Path) -> list[Answer]:
    """Return the replies of a script. Raises UsageError."""
    remedy = "A script is one JSON object a line; docs/agent-study.md shows one."
    if not path.is_file():
        raise UsageError(f"there is no script {path.name}", str(path.parent), remedy)
    try:
        lines = jsonio.lines(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"the script {path.name} cannot be read", str(error), remedy) from None
    answers: list[Answer] = []
    waiting: list[Fault] = []
    for number, told in enumerate(lines, 1):
        if not isinstance(told, dict) or set(told) - LINE or not set(told) & {"content", *FAULTS}:
            raise UsageError(f"the script {path.name} is wrong", f"line {number} is neither reply nor failure", remedy)
        waiting += _faults(told)
        if "content" not in told:
            continue
        match = told.get("match") or {}
        at = match.get("turn", len(answers))
        stop = "tool_use" if any(b.get("type") == "tool_use" for b in told["content"]) else "end_turn"
        answers.append(
            Answer(
                number, at, told["content"], told.get("stop_reason") or stop, told.get("usage") or {}, match, waiting
            )
        )
        waiting = []
    if waiting:
        answers.append(Answer(len(lines), len(answers), [], "end_turn", {}, {}, waiting))
    if not answers:
        raise UsageError(f"the script {path.name} is empty", "no line has content", remedy)
    return answers
