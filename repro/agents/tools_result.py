"""What a tool answers."""

from __future__ import annotations

from dataclasses import dataclass

# Of one answer: what is longer loses its middle, where a reader misses it least.
MOST_CHARACTERS = 30_000


@dataclass(frozen=True)
class Result:
    """text goes to the model. soft_error: the tool says that all is well, but its text reports a failure."""

    text: str
    is_error: bool = False
    soft_error: bool = False


def shorten(text: str, where: str = "", most: int = MOST_CHARACTERS) -> str:
    """The text with its middle left out where it is too long. where: what holds all of it."""
    if len(text) <= most:
        return text
    half = most // 2
    note = f"\n[... {len(text) - 2 * half} characters left out{f'; all of it is in {where}' if where else ''} ...]\n"
    return text[:half] + note + text[-half:]
