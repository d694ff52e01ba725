"""Keys leave no trace: every text is searched for their values, in the forms that they travel in."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from repro import jsonio
from repro.errors import UsageError

MARK = "[redacted]"
SHORTEST = 8


def _base64_forms(value: bytes) -> set[str]:
    """What base64 makes of a value wherever it begins in a longer text, without the characters that also depend on
    its neighbours."""
    forms = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + value).decode()
        end = len(text) - (0, 3, 2)[(before + len(value)) % 3]
        core = text[(0, 2, 3)[before] : end]
        forms |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= SHORTEST}


def _forms(value: str) -> set[str]:
    """A value as it stands in plain text, JSON (also JSON within JSON), URLs, hexadecimal and base64."""
    plain = json.dumps(value)[1:-1]
    escaped = {plain, json.dumps(plain)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped} | {form.replace("/", "\\\\/") for form in escaped}
    raw = value.encode()
    return {value, quote(value), quote(value, safe=""), raw.hex(), raw.hex().upper()} | escaped | _base64_forms(raw)


class Redactor:
    """Replaces the values of keys.

    values: the keys. Raises UsageError for one under 8 characters, which ordinary text would hold by chance.
    """

    def __init__(self, values: list[str]) -> None:
        if any(len(value) < SHORTEST for value in values):
            raise UsageError(
                f"a key is shorter than {SHORTEST} characters", "redaction would hit ordinary text", "Check the keys."
            )
        forms = set().union(*map(_forms, values)) if values else set()
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def holds(self, text: str) -> bool:
        """Whether a text holds a key in any form."""
        return any(form in text for form in self._forms)

    def text(self, text: str) -> str:
        """The text without keys."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MARK)
        return text

    def data(self, raw: bytes) -> bytes:
        """The same for UTF-8; bytes that hold no key come back as they are."""
        if not self._forms:
            return raw
        text = raw.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape") if self.holds(text) else raw

    def value(self, value: Any) -> Any:
        """The same for what JSON knows: strings and the names of fields, at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(held) for name, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(held) for held in value]
        return value

    def line(self, value: Any) -> str:
        """One line of JSON without keys."""
        line = jsonio.dumps(value)
        if not self.holds(line):
            return line
        line = jsonio.dumps(self.value(value))
        return line if not self.holds(line) else jsonio.dumps({"redacted": "whole line"})
