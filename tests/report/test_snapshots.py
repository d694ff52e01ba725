"""What reports of four recorded bundles say, by every renderer.

`pytest tests/report/test_snapshots.py --snapshot-update` writes what they say now: a change of it is made on purpose,
and is seen in review.
"""

from __future__ import annotations

import hashlib
import io
import re
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT
from rich.console import Console

from repro.bundle.write import Bundle
from repro.report import document, latex, markdown, page, terminal
from repro.report.document import Document
from repro.system.screen import Screen

RESULTS = ROOT / "artifacts" / "results" / "h200-pinned"
BUNDLES = {
    "benchmark": "20261124T133107Z-benchmark",
    "run": "20261123T130313Z-run",
    "fixtures": "20261123T130219Z-fixtures",
    "self-test": "20261129T190645Z-self-test",
}
# Rows of a table that a snapshot shows; the others are a number and a hash.
SHOWN = 2


@cache
def built(verb: str) -> Document:
    return document.build([Bundle.open(RESULTS / BUNDLES[verb])])


def short(rows: list[str]) -> list[str]:
    """The first rows of a table, and a hash of the others."""
    rest = hashlib.sha256("\n".join(rows[SHOWN:]).encode()).hexdigest()[:12]
    return rows[:SHOWN] + [f"… and {len(rows) - SHOWN} rows, {rest}"] * (len(rows) > SHOWN)


@pytest.mark.parametrize("verb", BUNDLES)
def test_markdown(verb, snapshot):
    """The summary whole, of other tables the first rows."""
    head, found, evidence = markdown.render(built(verb)).partition("<details>")
    lines, table = [], []
    for line in [*(found + evidence).splitlines(), ""]:
        if line.startswith("|"):
            table.append(re.sub(r" {2,}|-{4,}", " ", line))
        else:
            lines += [*table[:2], *short(table[2:]), line]
            table = []
    assert head + "\n".join(lines) == snapshot


@pytest.mark.parametrize("verb", BUNDLES)
def test_page(verb, snapshot):
    """Its markup: markdown has the words of tables and figures."""
    text = page.render(built(verb), {figure.id: f"<svg>{figure.id}</svg>" for figure in built(verb).figures})
    text = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", text, flags=re.DOTALL)
    text = re.sub(r"sha256-[\w+/=]+", "(hash)", text)

    def body(found: re.Match[str]) -> str:
        rows = re.findall(r"<tr>.*?</tr>", found[0], re.DOTALL)
        return (
            f"<tbody>{rows[0]} and {len(rows) - 1} rows, {hashlib.sha256(found[0].encode()).hexdigest()[:12]}</tbody>"
        )

    text = re.sub(r"<tbody>.*?</tbody>", body, text, flags=re.DOTALL)
    text = re.sub(r"(?<=<p>)[^<]{60}[^\n]*(?=</p>)", "…", text)
    assert re.sub(r"\n+", "\n", text) == snapshot


@pytest.mark.parametrize("verb", BUNDLES)
def test_latex(verb, snapshot):
    """A hash: that its text is the same is seen in markdown, and that it can be set in test_page.py."""
    assert hashlib.sha256(latex.render(built(verb)).encode()).hexdigest() == snapshot


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("verb", BUNDLES)
def test_terminal(verb, width, snapshot):
    """No line is wider than the terminal; the summary is one screen, and the last line names the page."""

    def shown(*, verbose: bool) -> str:
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        screen = Screen(verbose=verbose, console=console)
        terminal.draw(built(verb), screen)
        terminal.last(built(verb), screen, [Path("a/report.json"), Path("a/report.md"), Path("a/report.html")])
        text = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]
        assert max(map(len, text.splitlines())) <= width
        return text

    summary, whole = shown(verbose=False), shown(verbose=True)
    assert len(summary.splitlines()) < 45 and summary.splitlines()[-1].endswith("report: a/report.html")
    every = hashlib.sha256(whole.encode()).hexdigest()[:12]
    assert f"{summary}\n\n-v: {len(whole.splitlines())} lines, {every}" == snapshot
