"""Where reports go: into each bundle, or for several side by side into a folder of their own."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from repro.bundle.write import Bundle
from repro.errors import UsageError, refusing
from repro.report import document, elements, figures, latex, markdown, page, traces
from repro.report.document import Document
from repro.report.elements import Table
from repro.system import jsonio

FORMATS = ("md", "html", "tex", "svg", "csv", traces.FOLDER)
# Without a word: figures are in the page already.
USUAL = "md,html,tex"


def formats(asked: str) -> list[str]:
    """`md,html` as a list. Raises UsageError for what is no format."""
    found = [word.strip() for word in asked.split(",") if word.strip()]
    unknown = [word for word in found if word not in FORMATS]
    if unknown or not found:
        what = f"no format {', '.join(unknown)}" if unknown else "no format was named"
        raise UsageError(what, f"there are {', '.join(FORMATS)}", "Separate several by commas.")
    return found


def table_csv(table: Table) -> str:
    """A table as CSV: whole numbers as measured; an interval and a spread have columns of their own."""
    columns, rows = table.columns, table.rows
    parts = [
        list(dict.fromkeys(name for row in rows for name in elements.values(row[at]))) for at in range(len(columns))
    ]
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow([f"{head.title} {part}".strip() for head, of in zip(columns, parts, strict=True) for part in of])
    for row in rows:
        lines.writerow([elements.values(cell).get(part) for cell, of in zip(row, parts, strict=True) for part in of])
    return out.getvalue()


def _document(bundles: list[Bundle], chosen: list[str]) -> tuple[Document, dict[str, str]]:
    """Return the document, and file -> content of every format; `svg` is a file a figure, `csv` a file a table."""
    whole = document.build(bundles)
    pictures = figures.every(whole.figures) if {"html", "svg"} & set(chosen) else {}
    found = {"report.json": jsonio.render(whole.to_json()).decode()}
    for name in chosen:
        match name:
            case "md":
                found["report.md"] = markdown.render(whole)
            case "html":
                found["report.html"] = page.render(whole, pictures)
            case "tex":
                found["report.tex"] = latex.render(whole)
            case "svg":
                found |= {f"figures/{figure}.svg": text + "\n" for figure, text in pictures.items()}
            case traces.FOLDER:
                found |= traces.files(bundles)
            case "csv":
                found |= {f"tables/{t.id}.csv": table_csv(t) for section in whole.sections for t in section.tables}
    return whole, found


def into(bundle: Bundle, chosen: list[str]) -> tuple[Document, list[Path]]:
    """Writes report.json, report.md and what else was asked for into a bundle, which is closed again.

    Returns the document and the files. Raises UsageError where the bundle is still being written, PrerequisiteError
    where a format needs what is not installed.
    """
    whole, drawn = _document([bundle], ["md", *(name for name in chosen if name != "md")])
    for name, content in drawn.items():
        bundle.file(name, content.encode())
    bundle.finish(bundle.manifest["status"])
    return whole, [bundle.path / name for name in drawn]


def first(files: list[Path]) -> Path | None:
    """Return the file that a reader opens: the page where it was written, else markdown, else any but JSON."""
    return min(files, key=lambda file: {".html": 0, ".md": 1, ".tex": 2, ".json": 4}.get(file.suffix, 3), default=None)


def beside(bundles: list[Bundle], chosen: list[str], folder: Path) -> tuple[Document, list[Path]]:
    """Writes one document of all bundles into a folder: report.json, and every format drawn from it. The bundles stay
    as they are. Raises UsageError where the folder cannot be written, PrerequisiteError as `into`.
    """
    whole, drawn = _document(bundles, chosen)
    with refusing(UsageError, f"cannot write to {folder}", "Choose another -o."):
        for name, content in drawn.items():
            jsonio.replace(folder / name, content.encode())
    return whole, [folder / name for name in drawn]
