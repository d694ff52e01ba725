"""A document as one HTML file: style, script and figures are in it, nothing is loaded, no script is needed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from repro.report import elements, figures, summary, template
from repro.report.document import Document
from repro.report.elements import Section


def render(document: Document, drawn: Mapping[str, str] | None = None) -> str:
    """The whole page. drawn: figure id -> SVG, else the figures are drawn here.

    Raises PrerequisiteError without jinja2.
    """
    style, script = map(template.read, ("report.css", "report.js"))
    drawn = figures.every(document.figures) if drawn is None else drawn
    opens = {summary.id_and_name(code.problem)[0]: f"kernel-{at}"
             for section in document.sections for at, code in reversed([*enumerate(section.codes, 1)])}  # fmt: skip
    shown = {
        "document": document,
        "style": style,
        "script": script,
        "script_hash": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "figures": drawn,
        "elements": elements,
        "contents": _contents,
        "opens": opens,
    }
    return template.render("report.html.j2", shown, autoescape=True)


def _contents(section: Section) -> str:
    """What a closed section holds: `1 figure, 12 rows`."""
    figures, rows = len(section.figures), sum(len(table.rows) for table in section.tables)
    counts = ((figures, "figure"), (rows, "row"), (len(section.codes), "source"))
    return ", ".join(elements.count(n, word) for n, word in counts if n)
