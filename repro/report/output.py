"""Where reports go: into each bundle, or for several side by side into a folder of their own."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from repro import config
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.report import cells, document, latex, markdown, page, plots
from repro.report.document import Document
from repro.report.elements import Table
from repro.system import jsonio

FORMATS = ("md", "html", "tex", "svg", "csv")
# Without a word: figures are in the page already.
USUAL = "md,html,tex"
RENDER = {"md": markdown.render, "html": page.render, "tex": latex.render}


def formats(asked: str) -> list[str]:
    """`md,html` as a list. Raises UsageError for what is no format."""
    found = [word.strip() for word in asked.split(",") if word.strip()]
    unknown = [word for word in found if word not in FORMATS]
    if unknown or not found:
        what = f"no format {', '.join(unknown)}" if unknown else "no format was named"
        raise UsageError(what, f"there are {', '.join(FORMATS)}", "Separate several by commas.")
    return found


def _table_csv(table: Table) -> str:
    """A table as CSV: whole numbers as measured; an interval and a spread have columns of their own."""
    columns, rows = cells.written(table)
    parts = [list(dict.fromkeys(name for row in rows for name in cells.values(row[at]))) for at in range(len(columns))]
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow([f"{head.title} {part}".strip() for head, of in zip(columns, parts, strict=True) for part in of])
    for row in rows:
        lines.writerow([cells.values(cell).get(part) for cell, of in zip(row, parts, strict=True) for part in of])
    return out.getvalue()


def draw(whole: Document, chosen: list[str]) -> dict[str, str]:
    """File -> content of every format; `svg` is a file a figure, `csv` a file a table."""
    found = {"report.json": jsonio.dumps(whole.to_json(), indent=1) + "\n"}
    found |= {f"report.{name}": RENDER[name](whole) for name in chosen if name in RENDER}
    for section in whole.sections:
        if "svg" in chosen:
            found |= {f"figures/{figure.id}.svg": plots.svg(figure) + "\n" for figure in section.figures}
        if "csv" in chosen:
            found |= {f"tables/{table.id}.csv": _table_csv(table) for table in section.tables}
    return found


def into(bundle: Bundle, chosen: list[str], artifacts: Path = config.ARTIFACTS_DIR) -> tuple[Document, list[Path]]:
    """Writes report.json, report.md and what else was asked for into a bundle, which is closed again.

    Returns the document and the files. Raises UsageError where the bundle is still being written, PrerequisiteError
    where a format needs what is not installed.
    """
    whole = document.build([bundle], artifacts)
    drawn = draw(whole, ["md", *(name for name in chosen if name != "md")])
    for name, content in drawn.items():
        bundle.file(name, content.encode())
    bundle.finish(bundle.manifest["status"])
    return whole, [bundle.path / name for name in drawn]


def first(files: list[Path]) -> Path | None:
    """Return the file that a reader opens: the page where it was written, else markdown, else any."""
    return min(files, key=lambda file: {".html": 0, ".md": 1}.get(file.suffix, 2), default=None)


def beside(bundles: list[Bundle], chosen: list[str], artifacts: Path, folder: Path) -> tuple[Document, list[Path]]:
    """Writes one document of all bundles into a folder: report.json, and every format drawn from it. The bundles stay
    as they are. Raises UsageError where the folder cannot be written, PrerequisiteError as `into`.
    """
    whole = document.build(bundles, artifacts)
    drawn = draw(whole, chosen)
    try:
        for name, content in drawn.items():
            jsonio.replace(folder / name, content.encode())
    except OSError as error:
        raise UsageError(f"cannot write to {folder}", error.strerror or str(error)) from error
    return whole, [folder / name for name in drawn]


def verified(whole: Document) -> bool:
    """Whether every bundle of a document passes `repro verify`."""
    return all(source.verified for source in whole.sources)
