"""A document as markdown: the summary and the sections that matter; long evidence is folded or left to the page."""

from __future__ import annotations

import re
from typing import Any

from tabulate import tabulate

from repro.report import cells

MARKS = {"error": "**Error.**", "warning": "**Warning.**", "note": "**Note.**"}


def render(document: dict[str, Any]) -> str:
    """The whole text."""
    lines = [f"# {document['title']}", f"**{_escaped(document['headline']['text'])}**"]
    lines += [f"> {MARKS[each['kind']]} {_escaped(each['text'])}" for each in document["banners"]]
    lines.append(" · ".join(_card(each) for each in document["cards"]))
    for part in document["sections"]:
        if part["open"]:
            lines.append(section(part))
        elif part["paper"]:
            lines.append(f"<details><summary>{part['title']}</summary>\n\n{_body(part)}\n\n</details>")
    left = [part["title"].lower() for part in document["sections"] if not (part["open"] or part["paper"])]
    if left:
        lines.append(f"Also in `report.json` and on the page (`repro report --format html`): {', '.join(left)}.")
    return "\n\n".join(line for line in lines if line) + "\n"


def _card(card: dict[str, Any]) -> str:
    detail = f" ({card['detail']})" if card["detail"] else ""
    return _escaped(f"{card['label']}: **{card['value']}**{detail}")


def section(part: dict[str, Any]) -> str:
    """One section with its title."""
    return f"## {part['title']}\n\n{_body(part)}"


# Wider tables are not padded: blanks would be most of the file.
PADDED_COLUMNS = 160


def _body(part: dict[str, Any]) -> str:
    lines = [_escaped(text) for text in part["text"]]
    for table in part["tables"]:
        lines += [f"{_escaped(table['caption'])}:" if table["caption"] else "", _table(table)]
    return "\n\n".join(line for line in lines if line)


def plain(text: str) -> str:
    """A text that is not ours, as it reads: in one cell, without links, elements and code."""
    for mark in ("\\", "|", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("](", "]\\(")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def _table(table: dict[str, Any]) -> str:
    columns, rows = cells.written(table)
    heads = [_escaped(head["title"]) for head in columns]
    kinds = [head["kind"] for head in columns]
    told = [[_cell(kind, cell) for kind, cell in zip(kinds, row, strict=True)] for row in rows]
    padded = tabulate(told, headers=heads, tablefmt="github", disable_numparse=True)
    if len(padded.partition("\n")[0]) <= PADDED_COLUMNS:
        return padded
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *told))


def _cell(kind: str, cell: Any) -> str:
    found = " ".join(cells.text(kind, cell).split())
    if kind != "code" or found == cells.EMPTY:
        return plain(found)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", found)), default=0))
    pad = " " * ("`" in found)
    return fence + pad + found.replace("|", "\\|") + pad + fence
