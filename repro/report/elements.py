"""The plain data that a document is made of: cards, banners, and sections of text, tables and figures.

Every renderer draws these alone, so that a terminal, a page and a paper say the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Element = dict[str, Any]


def table(name: str, caption: str, columns: Iterable[tuple[str, str]], rows: Iterable[list[Any]]) -> Element:
    """A table. columns: (title, kind of `cells`); the first column names its row. name: unique in the document.

    A column in which every cell is empty is left out.
    """
    heads = [{"title": title, "kind": kind} for title, kind in columns]
    lines = list(rows)
    assert all(len(line) == len(heads) for line in lines), name
    kept = [at for at in range(len(heads)) if not at or any(line[at] not in (None, "") for line in lines)]
    return {"id": name, "caption": caption, "columns": [heads[at] for at in kept],
            "rows": [[line[at] for at in kept] for line in lines]}  # fmt: skip


def figure(name: str, kind: str, title: str, alt: str, **data: Any) -> Element:
    """A figure. kind: a function of `plots`; alt: what it shows, in words; data: what it is drawn from."""
    return {"id": name, "kind": kind, "title": title, "alt": alt, "data": data}


def section(
    name: str, title: str, *, text: Iterable[str] = (), figures: Iterable[Element] = (), tables: Iterable[Element] = (),
    paper: bool = True, opened: bool = False,
) -> Element:  # fmt: skip
    """A section. Tables without rows are left out. paper: whether markdown and LaTeX print it; opened: whether it is
    shown without a click."""
    return {"id": name, "title": title, "text": list(text), "figures": list(figures),
            "tables": [each for each in tables if each["rows"]], "paper": paper, "open": opened}  # fmt: skip


def holds(section: Element) -> bool:
    """Whether a section has anything to show."""
    return bool(section["text"] or section["figures"] or section["tables"])


def card(label: str, value: str, detail: str = "", tone: str = "") -> Element:
    """One figure of a report's head. tone: good, bad, open, or "" where it is no judgement."""
    return {"label": label, "value": value, "detail": detail, "tone": tone}


def banner(kind: str, text: str) -> Element:
    """A sentence that must be read before any number. kind: error (do not trust this), warning or note."""
    return {"kind": kind, "text": text}


def count(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Iterable[str], shown: int = 5) -> str:
    """`a, b and 3 more`."""
    every = list(names)
    more = len(every) - shown
    return ", ".join(every[:shown]) + (f" and {more} more" if more > 0 else "")
