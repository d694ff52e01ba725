"""The plain data that a document is made of: sections of text, tables and figures. Every renderer draws these alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Part = dict[str, Any]


def table(name: str, caption: str, columns: Iterable[tuple[str, str]], rows: Iterable[list[Any]]) -> Part:
    """A table. columns: (title, kind of `cells`); the first column names its row. name: unique in the document."""
    heads = [{"title": title, "kind": kind} for title, kind in columns]
    cells = list(rows)
    assert all(len(row) == len(heads) for row in cells), name
    return {"id": name, "caption": caption, "columns": heads, "rows": cells}


def figure(name: str, kind: str, title: str, alt: str, **data: Any) -> Part:
    """A figure. kind: a function of `plots`; alt: what it shows, in words; data: what it is drawn from."""
    return {"id": name, "kind": kind, "title": title, "alt": alt, "data": data}


def section(
    name: str, title: str, *, text: Iterable[str] = (), figures: Iterable[Part] = (), tables: Iterable[Part] = (),
    paper: bool = True,
) -> Part:  # fmt: skip
    """A section. paper: whether LaTeX prints its tables."""
    return {"id": name, "title": title, "text": list(text), "figures": list(figures), "tables": list(tables),
            "paper": paper}  # fmt: skip


def count(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
