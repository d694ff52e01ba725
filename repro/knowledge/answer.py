"""The answer of a tool, and assembling its text within a size."""

from __future__ import annotations

from dataclasses import dataclass

from repro.knowledge.parts import LINK

MAX_CHARS = 9000
MAX_PAGE_CHARS = 16_000


@dataclass(frozen=True)
class Answer:
    """text: markdown with [page-id] citations. hits: the pages that it quotes or cites, best first, each once.

    is_error: the call itself was wrong, or the page does not exist.
    """

    text: str
    hits: tuple[str, ...] = ()
    is_error: bool = False


def put(parts: list[str], hits: list[str], most: int = MAX_CHARS) -> Answer:
    """Return an answer of parts separated by blank lines, cut at `most` characters."""
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    # A log may contain half of a surrogate pair, which JSON cannot carry.
    sendable = clip(text, most).encode(errors="replace").decode()
    return Answer(sendable, tuple(dict.fromkeys(hits)))


def clip(text: str, most: int) -> str:
    """Return at most `most` characters, cut between lines or words; an open code block is closed."""
    text = text.strip()
    if len(text) <= most:
        return text
    room = most - len("\n```\n[...]")
    cut = text[:room]
    line, word = cut.rfind("\n"), cut.rfind(" ")
    cut = cut[: line if line > 0.7 * room else word if word > 0 else room].rstrip()
    fence = "\n```" if cut.count("```") % 2 else ""
    return f"{cut}{fence}\n[...]"


def linked(text: str) -> str:
    """Return the text with links between pages as citations: [[slug]] becomes [slug]."""
    return LINK.sub(r"[\1]", text)
