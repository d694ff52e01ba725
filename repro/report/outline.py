"""A document as markdown: the same sections as the page, with the words of a figure in its place."""

from __future__ import annotations

import re
from typing import Any

from tabulate import tabulate

from repro.report import cells


def render(document: dict[str, Any]) -> str:
    """The whole text."""
    lines = [f"# {document['title']}", f"**{document['headline']['text']}**"]
    lines += [section(each) for each in document["sections"]]
    return "\n\n".join(lines) + "\n"


def section(part: dict[str, Any]) -> str:
    """One section."""
    lines = [f"## {part['title']}", *(_escaped(text) for text in part["text"])]
    lines += [f"Figure, {figure['title']}: {_escaped(figure['alt'])}" for figure in part["figures"]]
    for table in part["tables"]:
        lines += [f"{_escaped(table['caption'])}:", _table(table)]
    return "\n\n".join(lines)


def plain(text: str) -> str:
    """A text that is not ours, as it reads: in one cell, without links, elements and code."""
    for mark in ("\\", "|", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("](", "]\\(")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _table(table: dict[str, Any]) -> str:
    kinds = [head["kind"] for head in table["columns"]]
    heads = [_escaped(head["title"]) for head in table["columns"]]
    rows = [[_cell(kind, cell) for kind, cell in zip(kinds, row, strict=True)] for row in table["rows"]]
    return tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True)


def _cell(kind: str, cell: Any) -> str:
    found = " ".join(cells.text(kind, cell).split())
    if kind != "code" or found == cells.EMPTY:
        return plain(found)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", found)), default=0))
    pad = " " * ("`" in found)
    return fence + pad + _escaped(found) + pad + fence
