"""Removes keys from every text, in all forms in which they may appear."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from repro.errors import UsageError
from repro.system import jsonio

MARK = "[redacted]"
SHORTEST = 8


def _base64_forms(value: bytes) -> set[str]:
    """Return the base64 forms of a value at any offset in a text, without characters that depend on neighbours."""
    forms = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + value).decode()
        end = len(text) - (0, 3, 2)[(before + len(value)) % 3]
        core = text[(0, 2, 3)[before] : end]
        forms |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= SHORTEST}


def _forms(value: str) -> set[str]:
    """Return the forms of a value in plain text, JSON (also nested), URLs, hexadecimal and base64."""
    plain = json.dumps(value)[1:-1]
    escaped = {plain, json.dumps(plain)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped} | {form.replace("/", "\\\\/") for form in escaped}
    raw = value.encode()
    return {value, quote(value), quote(value, safe=""), raw.hex(), raw.hex().upper()} | escaped | _base64_forms(raw)


class Redactor:
    """Replaces the values of keys.

    values: the keys. Raises UsageError for one under 8 characters, which could occur in ordinary text by chance.
    """

    def __init__(self, values: list[str]) -> None:
        if any(len(value) < SHORTEST for value in values):
            raise UsageError(
                f"a key is shorter than {SHORTEST} characters", "redaction would hit ordinary text", "Check the keys."
            )
        forms = set().union(*map(_forms, values)) if values else set()
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def holds(self, text: str) -> bool:
        """Return whether a text holds a key in any form."""
        return any(form in text for form in self._forms)

    def text(self, text: str) -> str:
        """Return the text without keys."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MARK)
        return text

    def data(self, raw: bytes) -> bytes:
        """Return UTF-8 bytes without keys; bytes that hold none are returned unchanged."""
        if not self._forms:
            return raw
        text = raw.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape") if self.holds(text) else raw

    def value(self, value: Any) -> Any:
        """Return a JSON value without keys, in strings and field names at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(held) for name, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(held) for held in value]
        return value

    def line(self, value: Any) -> str:
        """Return one line of JSON without keys."""
        line = jsonio.dumps(value)
        if not self.holds(line):
            return line
        line = jsonio.dumps(self.value(value))
        return line if not self.holds(line) else jsonio.dumps({"redacted": "whole line"})
