"""Writes what an upstream answered as a script that replays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.gateway.redact import Redactor
from repro.gateway.sse import Assembler
from repro.gateway.upstreams import script

FILE = "record.jsonl"


class Record:
    """The script under way. A turn that is asked twice is written once, with its first whole answer."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._path, self._redactor = folder / FILE, redactor
        self._known: set[str] = set()

    def add(self, body: dict[str, Any], answer: Assembler) -> None:
        """Writes one whole answer. Raises OSError."""
        key = script.key(body)
        if not answer.complete or key["sha256"] in self._known:
            return
        self._known.add(key["sha256"])
        line = {"match": key, "content": answer.content, "stop_reason": answer.stop_reason, "usage": answer.usage}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(self._redactor.line(line) + "\n")
