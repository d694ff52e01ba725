"""How the templates of a report's page, figures and LaTeX are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from repro.errors import PrerequisiteError
from repro.report import elements

_SHORT = 14  # characters of a name that does not wrap


def read(name: str) -> str:
    """Return a file of `templates/`."""
    return (resources.files("repro.report") / "templates" / name).read_text()


def render(name: str, values: Mapping[str, object], **options: Any) -> str:
    """A template of `templates/` with its values. options: of jinja2's environment.

    Raises PrerequisiteError without jinja2.
    """
    try:
        import jinja2
    except ImportError as error:
        remedy = "Run `make setup` or `pip install .` in a checkout, or draw markdown."
        raise PrerequisiteError("HTML, LaTeX and figures need jinja2", str(error), remedy) from error
    environment = jinja2.Environment(  # noqa: S701 LaTeX escapes by a filter of its own; the page turns autoescape on
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        **{"autoescape": False} | options,
    )  # fmt: skip
    environment.filters |= {
        "cell": lambda value, kind: elements.written(kind, value),
        "prose": _prose,
        "breakable": _breakable,
    }
    return str(environment.from_string(read(name)).render(values))


def _prose(text: str) -> Any:
    """A sentence in which words between backticks are code."""
    from markupsafe import Markup, escape

    pieces = map(escape, text.split("`"))
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


def _breakable(text: str) -> Any:
    """A long name that may wrap after an underscore or a slash."""
    from markupsafe import Markup, escape

    pieces = re.split(r"(?<=[_/])", text) if len(text) > _SHORT else [text]
    return Markup("<wbr>").join(map(escape, pieces))
