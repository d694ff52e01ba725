"""The result of a tool call."""

from __future__ import annotations

from dataclasses import dataclass

# Most characters of one result; a longer one loses its middle, which matters least.
MOST_CHARACTERS = 30_000


@dataclass(frozen=True)
class Result:
    """text: for the model. soft_error: the tool reports success, but its text reports a failure."""

    text: str
    is_error: bool = False
    soft_error: bool = False


def shorten(text: str, where: str = "", most: int = MOST_CHARACTERS) -> str:
    """Return the text, with its middle left out if it is too long. where: the file with the whole text."""
    if len(text) <= most:
        return text
    half = most // 2
    note = f"\n[... {len(text) - 2 * half} characters left out{f'; all of it is in {where}' if where else ''} ...]\n"
    return text[:half] + note + text[-half:]
