"""A document on a terminal: banners, what is open, with `-v` every section, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rich.text import Text

from repro.analysis import claims as judged_claims
from repro.records.claim import JudgedClaims
from repro.records.comparison import Comparison
from repro.report import claims, comparison, elements, output
from repro.report.document import Document
from repro.report.elements import Section, Table
from repro.system.screen import BAD, FEW, GOOD, MANY, OPEN, Column, Screen

_STYLES = {"good": GOOD, "bad": BAD, "open": OPEN, "": ""}
# Sections of many lines that say nothing of a solution: the page and its JSON have them.
_ON_THE_PAGE = ("fingerprints",)
_KINDS = {"error": BAD, "warning": OPEN, "note": "dim"}


def draw(document: Document, screen: Screen, *, tables: bool = True, also: Collection[str] = ()) -> None:
    """Print a whole document except its last line. tables: not only its banners. also: further sections to print."""
    for banner in document.banners:
        screen.line(banner.text, _KINDS[banner.kind])
    for source in document.sources if tables else []:
        machines = ", ".join(dict.fromkeys(source.machines.values()))
        screen.line(f"repro {source.verb}, {source.bundle}" + f": {machines}" * bool(machines), "dim")
    for part in document.sections if tables else []:
        if part.open or part.id in also or (screen.verbose and part.id not in _ON_THE_PAGE):
            section(part, screen, titled=screen.verbose)


def last(document: Document, screen: Screen, files: list[Path]) -> None:
    """The last line: the verdict, and the file that a reader opens: the page where it was written, else markdown."""
    screen.last(*document.headline.parts, report=output.first(files))


def draw_claims(found: JudgedClaims, screen: Screen, report: Path | None = None) -> None:
    """Print what claims came to: the last line as well."""
    for part in claims.short(found, whole=screen.verbose):
        section(part, screen)
    screen.last(f"claims: {judged_claims.told(found.counts)}", report=report)


def draw_comparison(compared: Comparison, screen: Screen) -> None:
    """Print a comparison of two bundles: the last line as well."""
    for part in comparison.sections(compared, whole=screen.verbose):
        section(part, screen)
    screen.last(*comparison.headline(compared))


def section(part: Section, screen: Screen, *, titled: bool = True) -> None:
    """A section: its tables, text and items; of figures the words where the screen is verbose."""
    if not part.holds:
        return
    if titled:
        screen.title(part.title)
    for each in part.tables:
        table(each, screen)
    for text in part.text:
        screen.line(text, "dim")
    for item in part.items:
        screen.item(item.text, Text(elements.SIGNS[item.tone], _STYLES[item.tone]) if item.tone else "-")
    for figure in part.figures if screen.verbose else []:
        screen.line(f"Figure, {figure.title}: {figure.alt}", "dim")


def table(part: Table, screen: Screen) -> None:
    """A table."""
    # a verdict may be a whole sentence
    columns = [
        Column(head.title, head.rank, number=elements.numeric(head.kind), least=24 if head.kind == "verdict" else 16)
        for head in part.columns
    ]
    verdict = next((at for at, head in enumerate(part.columns) if head.kind == "verdict"), None)
    rows = part.rows
    if len(rows) > MANY and not screen.verbose:
        worst = ["bad", "open", "good"]
        rows = sorted(rows, key=lambda row: worst.index(elements.tone(row[verdict] or "correct")) if verdict else 0)[
            :FEW
        ]
    cells = [[_cell(head.kind, elements.written(head.kind, cell))
              for head, cell in zip(part.columns, row, strict=True)] for row in rows]  # fmt: skip
    screen.table(columns, cells, part.caption)
    if left := len(part.rows) - len(rows):
        screen.line(f"{left} more are in the report; -v shows all here.", "dim")


def _cell(kind: str, text: str) -> Text | str | None:
    if text == elements.EMPTY:
        return None
    sign, _, word = text.partition("\u00a0")
    return Text(f"{sign} {word}", _STYLES[elements.tone(word)]) if kind == "verdict" else text
