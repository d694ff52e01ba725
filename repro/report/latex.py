"""A document's tables as LaTeX: booktabs and longtable, to be read in with \\input."""

from __future__ import annotations

import re

from repro.report import elements, template
from repro.report.document import Document
from repro.report.elements import Table

SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$",
    "✓": "", "✗": "", "○": "", "°": r"\textdegree{}", "…": r"\ldots{}", "·": r"$\cdot$", "→": r"$\rightarrow$",
} | {c: "\\" + c for c in "&%$#_{}"})  # fmt: skip
# Columns whose longest cell has more letters than this wrap.
NARROW = 22


def escape(text: object) -> str:
    """Text as LaTeX prints it; words between backticks are code, and signs of verdicts go, for their words stay."""
    pieces = [piece.translate(SPECIAL) for piece in str(text).split("`")]
    # a row that began with a bracket would be taken for a length after the line before it
    pieces[0] = re.sub(r"^\[", "{[}", pieces[0])
    return "".join(rf"\texttt{{{piece}}}" if at % 2 else piece for at, piece in enumerate(pieces)).strip()


def columns(table: Table) -> str:
    """The column types: numbers to the right, long text in paragraphs that share the line."""
    longest = [
        max([len(head.title), *(len(elements.written(head.kind, row[at])) for row in table.rows)])
        for at, head in enumerate(table.columns)
    ]
    wide = sum(length > NARROW for length in longest)
    kinds = []
    for head, length in zip(table.columns, longest, strict=True):
        if length > NARROW:
            kinds.append(rf"p{{{0.6 / wide:.2f}\linewidth}}")
        else:
            kinds.append("r" if elements.numeric(head.kind) else "l")
    return "".join(kinds)


def render(document: Document) -> str:
    """The whole file. Raises PrerequisiteError without jinja2."""
    shown = {"document": document, "escape": escape, "columns": columns, "text": elements.written}
    return template.render(
        "report.tex.j2", shown, block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>", comment_start_string="<#", comment_end_string="#>",
    )  # fmt: skip
