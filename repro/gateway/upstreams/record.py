"""Writes an upstream's answers as a script that replays them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.gateway.redact import Redactor
from repro.gateway.sse import Assembler
from repro.gateway.upstreams import script

FILE = "record.jsonl"


class Record:
    """The script being written. A turn that is requested twice is written once, with its first complete answer."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._path, self._redactor = folder / FILE, redactor
        self._known: set[str] = set()

    def add(self, body: dict[str, Any], answer: Assembler) -> None:
        """Write one complete answer. Raises OSError."""
        key = script.key(body)
        if not answer.complete or key["sha256"] in self._known:
            return
        self._known.add(key["sha256"])
        line = {"match": key, "content": answer.content, "stop_reason": answer.stop_reason, "usage": answer.usage}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(self._redactor.line(line) + "\n")
