"""Reports of several bundles side by side, through `repro report` as a user runs it, and in a browser.

What reports of recorded bundles say: test_snapshots.py.
"""

from __future__ import annotations

import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, executable
from conftest import Tool, strict_json
from sampled import seen
from test_claims import THEIRS, theirs
from test_report import bundle_of, result, study

from repro.bundle.write import Bundle
from repro.errors import PrerequisiteError
from repro.problems import catalogue
from repro.report import elements, latex, markdown, page
from repro.report.document import Document
from repro.report.elements import Quantity
from repro.system.jsonio import Json

CHECKS = Path(__file__).parents[1] / "page_checks.js"
NEWER = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
FILES = ("report.json", "report.md", "report.html", "report.tex")
HOSTILE = "<script>alert(1)</script>&_%$#{x}~^|`"


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and the artifact study on two stacks with the published folder's kernels."""
    tool = Tool(tmp_path_factory.mktemp("page"))
    paths = [study(tool.folder / "a", sampled=True).path, theirs(tool.folder / "b"),
             theirs(tool.folder / "c", THEIRS | {"compile": 5.0}, versions=NEWER)]  # fmt: skip
    done = tool.within("report", *paths, "-o", tool.folder / "out")
    done.succeeded()
    return tool.folder / "out"


def document(folder: Path) -> Json:
    return strict_json((folder / "report.json").read_text())


def section(whole: Json, name: str) -> Json:
    return next(s for s in whole["sections"] if s["id"] == name)


def rows_of(whole: Json, name: str, table: str) -> list[Json]:
    """A table's rows by column title."""
    found = next(t for t in section(whole, name)["tables"] if t["id"] == table)
    return [dict(zip((c["title"] for c in found["columns"]), row, strict=True)) for row in found["rows"]]


@pytest.mark.slow
def test_every_file_is_drawn_from_the_json_alone(drawn):
    """The same data gives the same bytes, figures among them."""
    whole = Document.model_validate(document(drawn))
    for name, render in (("html", page.render), ("tex", latex.render), ("md", markdown.render)):
        assert render(whole) == (drawn / f"report.{name}").read_text(), name


def test_nothing_empty_is_drawn(tool):
    """No section, table or column without content, and no sentence about claims that nothing tested."""
    done = tool.within("report", study(tool.folder / "a").path, "-o", "out", "--format", "md")
    done.succeeded()
    whole = document(tool.folder / "out")
    names = [section["id"] for section in whole["sections"]]
    assert names[0] == "summary" and not {"claims", "clocks", "parity"} & set(names)
    assert not any("claim" in card["label"].lower() for card in whole["cards"])
    for section in whole["sections"]:
        assert section["text"] or section["items"] or section["figures"] or section["tables"]
        for table in section["tables"]:
            assert table["rows"], table["id"]
            filled = [any(row[at] not in (None, "") for row in table["rows"]) for at in range(len(table["columns"]))]
            assert all(filled[1:]), table["id"]


def test_what_the_hardware_reached_is_bytes_and_operations_over_the_time(drawn):
    row = next(r for r in rows_of(document(drawn), "roofline", "roofline") if r["problem"] == "36_RMSNorm"
               and r["solution"] == "optimized")  # fmt: skip
    size, ms = 2 * 1879048192 * 2, row["ms"]
    assert row["MB"] == pytest.approx(size / 1e6) and row["GB/s"] == pytest.approx(size / ms / 1e6)
    assert row["of copy"] == pytest.approx(size / ms / 1e6 / 4300) and row["class"] == "bf16"


def test_the_command_of_a_run_stands_beside_its_bundle(tool):
    bundle = Bundle.open(theirs(tool.folder / "a"))
    bundle.manifest["argv"] = ["benchmark", "36", "--artifacts", "a folder"]
    bundle.finish("complete")
    assert tool.within("report", bundle.path, "-o", "out", "--format", "md").code == 0
    (row,) = rows_of(document(tool.folder / "out"), "bundles", "bundles")
    assert row["command"] == "repro benchmark 36 --artifacts 'a folder'"


class Page(HTMLParser):
    """What a page holds: tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag


def test_the_page_loads_nothing_and_is_labelled(drawn):
    text = (drawn / "report.html").read_text()
    tags = Page(text).tags
    for tag, attributes in tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "video", "audio"), tag
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img" and len(attributes["aria-label"] or "") > 40
    assert not re.search(r"url\((?!#)|@import|\bon\w+=", text)
    counts = Counter(tag for tag, _ in tags)
    assert counts["caption"] == counts["table"] > 8 and counts["h1"] == 1 and counts["svg"] == 1
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in tags and "default-src 'none'" in text


@pytest.mark.clock
def test_a_report_of_thirteen_problems_is_drawn_in_five_seconds(tool):
    times = {"eager": 4.0, "eager_tf32": 2.0, "compile": 3.0, "compile_tf32": 1.5, "mine": 1.0}
    names = catalogue.ids()
    assert len(names) == 13
    script = {name: result(name, times) | seen(seconds=60.0, timed=(20.0, 55.0)) for name in names}
    bundle = bundle_of(tool.folder, "evaluate", script, {n: {"problem": n, "file": f"{n}.py"} for n in names})
    began = time.monotonic()
    done = tool("report", bundle.path, "-o", "out")
    done.succeeded()
    assert time.monotonic() - began < 5
    assert len(rows_of(document(tool.folder / "out"), "correctness", "correctness")) == 13


def test_a_folder_of_its_own_leaves_the_bundles_as_they_were(tool):
    path = study(tool.folder / "a").path
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    done = tool.within("report", path, "-o", "out")
    assert done.code == 0 and "2 of 5 correct" in done.out
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert sorted(f.name for f in (tool.folder / "out").iterdir()) == sorted(FILES)


def test_figures_are_files_of_their_own_where_asked(tool):
    path = theirs(tool.folder / "a")
    assert tool.within("report", path, "-o", "out", "--format", "svg").code == 0
    files = sorted((tool.folder / "out/figures").iterdir())
    named = [f["id"] for s in document(tool.folder / "out")["sections"] for f in s["figures"]]
    assert sorted(file.stem for file in files) == sorted(named) and len(files) == 1
    for file in files:
        assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("args", "words"),
    [(("--format", "pdf"), "no format pdf"), (("--format", ","), "no format was named"),
     (("-o", "taken"), "cannot write to")],
)  # fmt: skip
def test_wrong_use_is_one_line(tool, args, words):
    (tool.folder / "taken").write_text("a file")
    done = tool.within("report", study(tool.folder / "a").path, *args)
    assert done.code == 1 and words in done.complaint


def test_bundles_of_other_kernels_are_not_passed_off_as_the_same(tool):
    a, b = theirs(tool.folder / "a"), theirs(tool.folder / "b", versions=NEWER)
    assert tool.within("report", a, b, "-o", "out", "--format", "md").code == 0
    assert "Not the same texts" not in (tool.folder / "out/report.md").read_text()
    rows = b / "rows.jsonl"
    rows.write_text(re.sub(r'"content": "\w+"', '"content": "0123456789abcdef"', rows.read_text()))
    done = tool.within("report", a, b, "-o", "out", "--format", "md")
    assert done.code == 2 and "fails verification" in done.out
    assert "**Error.** B: This bundle fails `repro verify`" in (tool.folder / "out/report.md").read_text()
    assert "Not the same texts, A against B" in (tool.folder / "out/report.md").read_text()


def test_names_of_solutions_are_text_in_every_format(tool):
    script = {"a": result("L1_36", {"eager": 4.0, "mine": 3.6})}
    path = bundle_of(tool.folder, "evaluate", script, {"a": {"problem": "L1_36", "file": HOSTILE}}).path
    assert tool.within("report", path, "-o", "out").code == 0
    text = (tool.folder / "out/report.html").read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert r"\_\%\$\#\{x\}\textasciitilde{}\textasciicircum{}" in (tool.folder / "out/report.tex").read_text()
    lines = (tool.folder / "out/report.md").read_text().splitlines()
    assert any(r"~^\|\`" in line for line in lines)


@pytest.mark.slow
def test_what_is_not_installed_is_a_missing_prerequisite(drawn, monkeypatch):
    whole = Document.model_validate(document(drawn))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PrerequisiteError, match="jinja2"):
        page.render(whole)


@pytest.mark.parametrize(
    ("kind", "cell", "text"),
    [("ratio", Quantity(value=1.5, ci95=[1.4, 1.6]), "1.50x [1.40, 1.60]"), ("ms", Quantity(value=1.0, ci95=[0.9, 1.1]),
      "1 [0.9, 1.1]"), ("percent", 0.345, "34.5 %"), ("scientific", 0.0, "0"), ("text", None, "–"), ("ms", None, "–"),
     ("verdict", "DIFFERS", "✗\u00a0DIFFERS"), ("verdict", "BLOCKED", "○\u00a0BLOCKED"), ("integer", 12345, "12,345")],
)  # fmt: skip
def test_cells(kind, cell, text):
    assert elements.written(kind, cell) == text


# In a browser

WIDTHS = (360, 768, 1280)
SORT = """(function () {
  const table = document.getElementById("log-table");
  const button = Array.from(table.querySelectorAll("th button")).find(b => b.textContent === "status");
  const order = () => Array.from(table.tBodies[0].rows).map(r => r.cells[2].textContent);
  const before = order();
  button.click();
  const up = order(), said = button.parentElement.getAttribute("aria-sort");
  button.click();
  return { before, up, down: order(), said, now: button.parentElement.getAttribute("aria-sort") };
})()"""
FILTER = """(function () {
  const input = document.getElementById("log-table-filter");
  input.value = "OUT memory";
  input.dispatchEvent(new Event("input"));
  const rows = Array.from(document.getElementById("log-table").tBodies[0].rows);
  const shown = rows.filter(r => !r.hidden).map(r => r.cells[0].textContent);
  return [shown, document.querySelector("#log output").textContent];
})()"""


@pytest.fixture(scope="module")
def browser() -> Any:
    path = executable()
    if path is None:
        pytest.skip("no Chromium is installed")
    with Browser(path) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_in_a_browser(drawn, browser, width, scheme):
    """At every width, light and dark: no word on the console, nothing loaded, and all of page_checks.js holds."""
    browser.look(width, scheme=scheme)
    browser.complaints.clear()
    browser.open(drawn / "report.html")
    assert browser.evaluate(CHECKS.read_text()) == []
    browser.evaluate("document.querySelector('#evidence > button').click()")
    assert browser.evaluate("document.querySelectorAll('details.section:not([open])').length") == 0
    assert browser.evaluate(CHECKS.read_text()) == []
    assert browser.complaints == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 150) == (scheme == "dark"), background


def test_tables_are_sorted_and_filtered(drawn, browser):
    browser.look(1280)
    browser.open(drawn / "report.html")
    told = browser.evaluate(SORT)
    assert told["up"] == sorted(told["up"]) != told["before"]
    assert told["down"] == sorted(told["down"], reverse=True) != told["up"]
    assert (told["said"], told["now"]) == ("ascending", "descending")
    names, count = browser.evaluate(FILTER)
    assert names == ["L1_36/oracle/0"] and count == "1 of 8 rows"


def test_numbers_are_sorted_as_numbers(drawn, browser):
    browser.look(1280)
    browser.open(drawn / "report.html")
    values = browser.evaluate("""(function () {
      const table = document.getElementById("roofline-table");
      const at = Array.from(table.tHead.rows[0].cells).findIndex(c => c.textContent === "GB/s");
      table.tHead.rows[0].cells[at].querySelector("button").click();
      return Array.from(table.tBodies[0].rows).map(r => Number(r.cells[at].dataset.sort));
    })()""")
    assert len(values) > 3 and values == sorted(values)


def test_without_scripts_every_row_stands_there(drawn, browser):
    browser.look(360, script=False)
    browser.open(drawn / "report.html")
    browser.look(360)
    assert browser.evaluate("document.querySelectorAll('button, input').length") == 0
    rows = sum(len(t["rows"]) for s in document(drawn)["sections"] for t in s["tables"])
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == rows


def test_printed_it_is_dark_on_white_and_within_the_sheet(drawn, browser, tmp_path):
    """Also where the screen is dark: paper is white."""
    browser.look(1032, scheme="dark", media="print")
    browser.open(drawn / "report.html")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert browser.evaluate("getComputedStyle(document.querySelector('#evidence > button')).display") == "none"
    assert browser.evaluate("Math.max(...Array.from(document.querySelectorAll('table,svg')).map(t => t.offsetWidth || "
                            "t.getBoundingClientRect().width))") <= 1033  # fmt: skip
    browser.pdf(tmp_path / "page.pdf")
    sheets = re.findall(rb"/Type /Page\b", (tmp_path / "page.pdf").read_bytes())
    assert 1 <= len(sheets) <= 4


def test_the_first_result_is_on_the_first_screen(drawn, browser):
    """The first row of the table on a desktop, the first cards on a phone; evidence is closed."""
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    for width, height, first in ((1280, 800, "#summary-table tbody tr"), (390, 844, ".cards div:nth-child(4)")):
        browser.look(width)
        browser.open(drawn / "report.html")
        assert browser.evaluate(bottom.format(first)) < height
    assert browser.evaluate("document.querySelectorAll('details.section[open]').length") == 0
