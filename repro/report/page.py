"""A document as one HTML file: style, script and figures are in it, nothing is loaded, no script is needed."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from repro.errors import PrerequisiteError
from repro.report import elements, figures, summary
from repro.report.document import Document
from repro.report.elements import Section

_SHORT = 14  # characters of a name that does not wrap
TEMPLATES = resources.files("repro.report") / "templates"


def template(name: str, **options: Any) -> Any:
    """A template of this package. options: of jinja2's environment. Raises PrerequisiteError without jinja2."""
    try:
        import jinja2
    except ImportError as error:
        remedy = "Run `make setup` or `pip install .` in a checkout, or draw markdown."
        raise PrerequisiteError("HTML and LaTeX need jinja2", str(error), remedy) from error
    environment = jinja2.Environment(  # noqa: S701 LaTeX escapes by a filter of its own; the page turns autoescape on
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        **{"autoescape": False} | options,
    )  # fmt: skip
    environment.filters |= {
        "cell": lambda value, kind: elements.written(kind, value),
        "prose": _prose,
        "breakable": _breakable,
    }
    return environment.from_string((TEMPLATES / name).read_text())


def render(document: Document, drawn: Mapping[str, str] | None = None) -> str:
    """The whole page. drawn: figure id -> SVG, else the figures are drawn here.

    Raises PrerequisiteError without jinja2, or without matplotlib where a figure must be drawn.
    """
    style, script = ((TEMPLATES / name).read_text() for name in ("report.css", "report.js"))
    drawn = figures.every(document.figures) if drawn is None else drawn
    opens = {summary.id_and_name(code.problem)[0]: f"kernel-{at}"
             for section in document.sections for at, code in reversed([*enumerate(section.codes, 1)])}  # fmt: skip
    text: str = template("report.html.j2", autoescape=True).render(
        document=document,
        style=style,
        script=script,
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        figures=drawn,
        elements=elements,
        contents=_contents,
        opens=opens,
    )
    return text


def _contents(section: Section) -> str:
    """What a closed section holds: `1 figure, 12 rows`."""
    figures, rows = len(section.figures), sum(len(table.rows) for table in section.tables)
    counts = ((figures, "figure"), (rows, "row"), (len(section.codes), "source"))
    held = [elements.count(n, word) for n, word in counts if n]
    return ", ".join(held)


def _prose(text: str) -> Any:
    """A sentence in which words between backticks are code."""
    from markupsafe import Markup, escape

    pieces = [escape(piece) for piece in text.split("`")]
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


def _breakable(text: str) -> Any:
    """A long name that may wrap after an underscore or a slash."""
    from markupsafe import Markup, escape

    pieces = re.split(r"(?<=[_/])", text) if len(text) > _SHORT else [text]
    return Markup("<wbr>").join(escape(piece) for piece in pieces)
