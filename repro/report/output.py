"""Where reports go: into each bundle, or for several side by side into a folder of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro import jsonio
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.report import document, latex, markdown, model, outline, page, plots

FORMATS = ("md", "html", "tex", "svg")
# Without a word: figures are in the page already.
USUAL = "md,html,tex"
RENDER = {"md": outline.render, "html": page.render, "tex": latex.render}


def formats(asked: str) -> list[str]:
    """`md,html` as a list. Raises UsageError for what is no format."""
    found = [word.strip() for word in asked.split(",") if word.strip()]
    unknown = [word for word in found if word not in FORMATS]
    if unknown or not found:
        what = f"no format {', '.join(unknown)}" if unknown else "no format was named"
        raise UsageError(what, f"there are {', '.join(FORMATS)}", "Separate several by commas.")
    return found


def _drawn(whole: dict[str, Any], chosen: list[str]) -> dict[str, str]:
    """File -> content of every format; `svg` is a file for each figure."""
    found = {f"report.{name}": RENDER[name](whole) for name in chosen if name in RENDER}
    figures = [f for section in whole["sections"] for f in section["figures"]] if "svg" in chosen else []
    return found | {f"figures/{figure['id']}.svg": plots.svg(figure) + "\n" for figure in figures}


def into(bundle: Bundle, chosen: list[str], artifacts: Path) -> tuple[dict[str, Any], str, list[Path]]:
    """Writes report.json, report.md and what else was asked for into a bundle, which is closed again.

    Returns the report's model, its markdown and the files. Raises UsageError where the bundle is still being written,
    PrerequisiteError where a format needs what is not installed.
    """
    report = model.build(bundle)
    text = markdown.render(report)
    drawn = {"report.json": jsonio.dumps(report, indent=1) + "\n", "report.md": text}
    others = [name for name in chosen if name != "md"]
    if others:
        drawn |= _drawn(document.build([bundle], artifacts), others)
    for name, content in drawn.items():
        bundle.file(name, content.encode())
    bundle.finish(bundle.manifest["status"])
    return report, text, [bundle.path / name for name in drawn]


def beside(
    bundles: list[Bundle], chosen: list[str], artifacts: Path, folder: Path
) -> tuple[dict[str, Any], list[Path]]:
    """Writes one document of all bundles into a folder: report.json, and every format drawn from it. The bundles stay
    as they are. Raises UsageError where the folder cannot be written, PrerequisiteError as `into`.
    """
    whole = document.build(bundles, artifacts)
    drawn = {"report.json": jsonio.dumps(whole, indent=1) + "\n"} | _drawn(whole, chosen)
    try:
        for name, content in drawn.items():
            jsonio.replace(folder / name, content.encode())
    except OSError as error:
        raise UsageError(f"cannot write to {folder}", error.strerror or str(error)) from error
    return whole, [folder / name for name in drawn]
