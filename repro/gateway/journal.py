"""The journal: every request with its answer, one line as it happens, without keys.

Lines are JSON objects with `n`, `time` (UTC) and `kind`. Kinds: `start` and `stop` of the gateway, `open` for an
admitted request without an answer yet, `request` for one with its answer, `kb` for a knowledge call. An `open` line
without a `request` of the same `id` was under way when the gateway was killed.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from pathlib import Path
from typing import Any

from repro.gateway.redact import Redactor
from repro.system import jsonio

FILE = "journal.jsonl"
# Beyond this many bytes, lines leave out all text and refusals have no lines (the meter counts them), so that no agent
# can fill the disk.
LARGEST = 512 * 1024 * 1024
SAID = ("excerpt", "response", "reply", "arguments", "text", "detail")
# Most characters kept of the arguments of one knowledge call.
LONGEST_SAID = 16_000
BIG = ("system", "tools")


def _digest(value: Any) -> str:
    return hashlib.sha256(jsonio.dumps(value).encode()).hexdigest()


def _unmarked(message: Any) -> Any:
    """Return a message without its cache marks, which move between requests."""
    if isinstance(message, dict):
        return {key: _unmarked(value) for key, value in message.items() if key != "cache_control"}
    return [_unmarked(part) for part in message] if isinstance(message, list) else message


class Journal:
    """The file of lines.

    Conversations repeat themselves, so a body holds only the part that differs from the one before. `messages_kept`:
    how many messages of line `kept_from` come first. {"same_as": n}: equal to the part in line n.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._redactor = folder / FILE, redactor
        jsonio.mend(self.path)
        self.n = len(jsonio.lines(self.path))
        self._bytes = self.path.stat().st_size if self.path.exists() else 0
        self._stream = self.path.open("a", encoding="utf-8")
        self._requests = 0
        self._messages: tuple[int, list[str]] = (0, [])
        self._parts: dict[str, tuple[int, str]] = {}

    def request_id(self) -> str:
        """Return an id for the next request, unique in this journal."""
        self._requests += 1
        return f"{self.n + 1}.{self._requests}"

    def write(self, kind: str, entry: dict[str, Any], body: dict[str, Any] | None = None) -> int:
        """Append a line and sync it to disk; return its number. Raises OSError."""
        full = self._bytes > LARGEST
        if full:
            if entry.get("decision") == "denied" or "/count_tokens" in entry.get("path", ""):
                return self.n
            entry = {name: value for name, value in entry.items() if name not in SAID}
        self.n += 1
        line = {"n": self.n, "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")}
        line |= {"kind": kind, **entry}
        if body is not None:
            line["body"] = {"omitted": "the journal is full"} if full else self._news(body)
        text = self._redactor.line(line) + "\n"
        self._stream.write(text)
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._bytes += len(text)
        return self.n

    def _news(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the part of a body that differs from the one before."""
        news = dict(body)
        messages = body.get("messages")
        if isinstance(messages, list):
            digests = [_digest(_unmarked(message)) for message in messages]
            before, known = self._messages
            kept = next((i for i, (a, b) in enumerate(zip(digests, known, strict=False)) if a != b), None)
            kept = min(len(digests), len(known)) if kept is None else kept
            self._messages = (self.n, digests)
            if kept:
                news |= {"messages": messages[kept:], "messages_kept": kept, "kept_from": before}
        for name in BIG:
            if name in body:
                digest = _digest(_unmarked(body[name]))
                n, known_digest = self._parts.get(name, (0, ""))
                if digest == known_digest:
                    news[name] = {"same_as": n}
                else:
                    self._parts[name] = (self.n, digest)
        return news

    def close(self) -> None:
        """Close the file; all lines are on disk already."""
        self._stream.close()


def short(value: Any) -> Any:
    """Return what an agent sent, or the beginning of its text if it is long."""
    text = jsonio.dumps(value)
    return value if len(text) <= LONGEST_SAID else {"begins": text[:LONGEST_SAID], "characters": len(text)}


def bodies(path: Path) -> dict[int, dict[str, Any]]:
    """Return the whole request bodies of a journal by line number. Raises OSError, ValueError.

    Cache marks are those of a part's first appearance.
    """
    whole: dict[int, dict[str, Any]] = {}
    for line in jsonio.lines(path):
        if "body" not in line:
            continue
        body = dict(line["body"])
        kept, origin = body.pop("messages_kept", 0), body.pop("kept_from", 0)
        if kept:
            body["messages"] = whole[origin]["messages"][:kept] + body["messages"]
        for name in BIG:
            if isinstance(body.get(name), dict):
                body[name] = whole[body[name]["same_as"]][name]
        whole[line["n"]] = body
    return whole
