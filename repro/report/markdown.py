"""A document as markdown: the summary and the sections that matter; long evidence is folded or left to the page."""

from __future__ import annotations

import re

from tabulate import tabulate

from repro.report import elements
from repro.report.document import Document
from repro.report.elements import Cell, Section, Table

MARKS = {"error": "**Error.**", "warning": "**Warning.**", "note": "**Note.**"}


def render(document: Document) -> str:
    """The whole text."""
    lines = [f"# {document.title}", f"**{_escaped(document.headline.text)}**"]
    lines += [f"> {MARKS[each.kind]} {_escaped(each.text)}" for each in document.banners]
    lines.append(
        " · ".join(
            _escaped(f"{each.label}: **{each.value}**" + f" ({each.detail})" * bool(each.detail))
            for each in document.cards
        )
    )
    for part in document.sections:
        if part.open:
            lines.append(section(part))
        elif part.paper:
            lines.append(f"<details><summary>{part.title}</summary>\n\n{_body(part)}\n\n</details>")
    left = [part.title.lower() for part in document.sections if not (part.open or part.paper)]
    if left:
        lines.append(f"Also in `report.json` and on the page (`repro report --format html`): {', '.join(left)}.")
    return "\n\n".join(filter(None, lines)) + "\n"


def section(part: Section) -> str:
    """One section with its title."""
    return f"## {part.title}\n\n{_body(part)}"


# Wider tables are not padded: blanks would be most of the file.
PADDED_COLUMNS = 160


def _body(part: Section) -> str:
    lines = [_escaped(text) for text in part.text]
    for each in part.tables:
        lines += [f"{_escaped(each.caption)}:" if each.caption else "", table(each)]
    items = (f"- {elements.SIGNS[item.tone]} {item.text}" if item.tone else f"- {item.text}" for item in part.items)
    lines.append("\n".join(map(_escaped, items)))
    return "\n\n".join(filter(None, lines))


def plain(text: str) -> str:
    """A text that is not ours, as it reads: in one cell, without links, elements and code."""
    for mark in ("\\", "|", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("](", "]\\(")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def table(of: Table) -> str:
    """Return a table without its caption."""
    heads = [_escaped(head.title) for head in of.columns]
    kinds = [head.kind for head in of.columns]
    told = [[_cell(kind, cell) for kind, cell in zip(kinds, row, strict=True)] for row in of.rows]
    padded = tabulate(told, headers=heads, tablefmt="github", disable_numparse=True)
    if len(padded.partition("\n")[0]) <= PADDED_COLUMNS:
        return padded
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *told))


def _cell(kind: str, cell: Cell) -> str:
    found = " ".join(elements.written(kind, cell).split())
    if kind != "code" or found == elements.EMPTY:
        return plain(found)
    fence = "`" * (1 + max(map(len, re.findall("`+", found)), default=0))
    pad = " " * ("`" in found)
    return fence + pad + found.replace("|", "\\|") + pad + fence
