"""Reports of several bundles side by side, through `repro report` as a user runs it, and in a browser.

The renderers are held to tests/golden; REPRO_WRITE_GOLDEN=1 writes those files anew. AXE_CORE=axe.min.js also runs
axe-core on the page.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, executable
from conftest import CPU, Tool, manifest, strict_json
from markupsafe import escape
from sampled import seen
from test_artifacts import published
from test_claims import THEIRS, theirs
from test_report import bundle_of, result, study

from repro import config
from repro.cli import main
from repro.errors import PrerequisiteError
from repro.problems import catalogue
from repro.report import cells, latex, markdown, page, plots
from repro.report.document import Document
from repro.report.elements import Cell, Figure, Quantity

GOLDEN = Path(__file__).parents[1] / "golden"
CHECKS = Path(__file__).parents[1] / "page_checks.js"
NEWER = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
FILES = ("report.json", "report.md", "report.html", "report.tex")
# Of a cell's markup what is words and numbers.
SHAPELESS = r'<wbr>|</?(?:code|b)>|data-sort="[^"]*"|\\[_%#]|[^<>✓✗○\\&]+(?![^<>]*>)'
# The markup of a table and of a figure, as it is around every one of them.
TABLE = re.compile(
    r'<div class="table">\n<div class="scroll" role="region" aria-labelledby="([^"]+)-caption" tabindex="0">\n'
    r'<table id="\1-table">\n<caption id="\1-caption"><span>([^\n]*)</span></caption>\n<thead>\n<tr>\n'
    r'((?:<th scope="col"[^\n]*</th>\n)*)</tr>\n</thead>\n<tbody>\n(.*?)</tbody>\n</table>\n</div>\n</div>\n',
    re.DOTALL,
)
LATEX = re.compile(
    r"{\\scriptsize\\setlength{\\tabcolsep}{3pt}\\sloppy\n\\begin{longtable}{(.+)}\n\\caption{(.+)}\\label{tab:(.+)}\\\\\n"
    r"\\toprule\n(.+) \\\\\n\\midrule\n\\endhead\n((?:.+\n)*?.+)\\bottomrule\n\\end{longtable}}\n"
)
FIGURE = re.compile(
    r'<figure id="(.+)-figure">\n<svg></svg>\n<figcaption><details><summary>(.+), in words</summary><p>(.+)</p>'
    r"</details></figcaption>\n</figure>\n"
)
HOSTILE = "<script>alert(1)</script>&_%$#{x}~^|`"


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and the artifact study on two stacks with the published folder's kernels and traces."""
    tool = Tool(tmp_path_factory.mktemp("page"))
    paths = [study(tool.folder / "a", sampled=True).path, theirs(tool.folder / "b"),
             theirs(tool.folder / "c", THEIRS | {"compile": 5.0}, versions=NEWER)]  # fmt: skip
    folder = published(tool.folder / "theirs")
    done = tool.within("report", *paths, "-o", tool.folder / "out", "--artifacts", folder)
    assert done.code == 0, done.err
    return tool.folder / "out"


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = strict_json((folder / "report.json").read_text())
    return found


def section(whole: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in whole["sections"] if s["id"] == name)
    return found


def rows_of(whole: dict[str, Any], name: str, table: str) -> list[dict[str, Any]]:
    """A table's rows by column title."""
    found = next(t for t in section(whole, name)["tables"] if t["id"] == table)
    return [dict(zip((c["title"] for c in found["columns"]), row, strict=True)) for row in found["rows"]]


def lines_of(told: str) -> set[str]:
    """The lines of a text of markdown as HTML and as LaTeX have them."""
    page = (re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(line))) for line in told.splitlines())
    return {f"<p>{line}</p>" for line in page} | {
        re.sub("`([^`]+)`", r"\\texttt{\1}", re.sub("([_%#&$])", r"\\\1", line)) for line in told.splitlines()
    }


def steady(text: str, told: str = "") -> str:
    """Without what differs from run to run, and what has a golden file or a source file of its own.

    Of the rows of tables, in HTML or LaTeX, those stay that have a cell which differs from all before it in more than
    words and numbers: markdown has the words. The number of all rows, and a hash of their shapes, stand after them.
    What TABLE, LATEX and FIGURE match is written as `<<table` and `<<figure`, which no page holds;
    of a line that stands in the markdown, `told`, the first words stay, and `<<`.
    """
    shapes, lines = set[str](), lines_of(told)
    text = "\n".join(f"{line[:28]}<<" if len(line) > 40 and line in lines else line for line in text.split("\n"))

    def shortened(table: re.Match[str]) -> str:
        rows, every = list[str](), list[str]()
        for row in re.findall(r"<tr>.*?</tr>\n|[^\n]+ \\\\\n", table[2], re.DOTALL):
            cells = re.findall(r"<t[hd].*?</t[hd]>|[^\n]+ \\\\\n", row)
            found = [re.sub(SHAPELESS, "", cell) for cell in cells]
            rows += [row] if set(found) - shapes else []
            shapes.update(found)
            every.append("".join(found))
        return f"{table[1]}{''.join(rows)}{len(every)} {hashlib.sha256(repr(every).encode()).hexdigest()[:6]}{table[3]}"

    def framed(table: re.Match[str]) -> str:
        head = re.sub(r'<th scope="col"(?: class="(\w+)")?>(.*)</th>', r"<\1>\2", table[3])
        return f"<<table {table[1]}\n{table[2]}\n{head}{table[4]}\n"

    bodies = r"(<tbody>\n|\\midrule\n(?:\\endhead\n)?)(.*?)(</tbody>|\\bottomrule)"
    text = re.sub(bodies, shortened, text, flags=re.DOTALL)
    text = re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.DOTALL)
    text = re.sub(r"<script>.*?</script>", "<script></script>", text, flags=re.DOTALL)
    text = re.sub(r"<svg .*?</svg>", "<svg></svg>", text, flags=re.DOTALL)
    text = TABLE.sub(framed, text)
    text = LATEX.sub(r"<<table \3 \1\n\2\n\4\n\5\n", text)
    text = FIGURE.sub(r"<<figure \1\n\2\n\3\n", text)
    text = re.sub(r'(?<= data-sort=")([\d.]{5})[^"]*', r"\1", text)
    text = re.sub(r"sha256-[\w+/=]+", "(hash)", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "(sha256)", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "(time)", text)
    return re.sub(r"^\|[-:|]+\|$", "|---|", re.sub(r" {2,}", "  ", text), flags=re.MULTILINE)


def golden(name: str, text: str) -> None:
    """Holds a text to its golden file: a change of it is made on purpose, and is seen in review."""
    file = GOLDEN / name
    if os.environ.get("REPRO_WRITE_GOLDEN") == "1":
        file.write_text(text)
    assert text == file.read_text(), "if this is meant: REPRO_WRITE_GOLDEN=1 python -m pytest tests/report/test_page.py"


@pytest.mark.parametrize("name", ["report.html", "report.tex", "report.md"])
def test_every_renderer_is_the_golden_one(drawn: Path, name: str) -> None:
    told = "" if name == "report.md" else (drawn / "report.md").read_text()
    golden(f"document.{name.partition('.')[2]}", steady((drawn / name).read_text(), told))


def test_a_figure_is_the_golden_one(drawn: Path) -> None:
    (figure,) = section(document(drawn), "claims")["figures"]
    golden("forest.svg", plots.svg(Figure.model_validate(figure)))


@pytest.mark.slow
def test_every_file_is_drawn_from_the_json_alone(drawn: Path) -> None:
    """The same data gives the same bytes, figures among them."""
    whole = Document.model_validate(document(drawn))
    for name, render in (("html", page.render), ("tex", latex.render), ("md", markdown.render)):
        assert render(whole) == (drawn / f"report.{name}").read_text(), name


def test_the_tables_are_latex(drawn: Path, tmp_path: Path) -> None:
    """Set without an error, the packages that the file names loaded."""
    tex = shutil.which("pdflatex")
    if tex is None:
        pytest.skip("no pdflatex is installed")
    shutil.copy(drawn / "report.tex", tmp_path)
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs,longtable,textcomp}\n"
        "\\begin{document}\n\\input{report.tex}\n\\end{document}\n"
    )
    command = [tex, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_claims_have_a_group_of_columns_for_every_stack(drawn: Path) -> None:
    whole = document(drawn)
    rows = {row["claim"]: row for row in rows_of(whole, "claims", "claims")}
    row = rows["artifact-speedup/36_RMSNorm"]
    verdicts = {title: value for title, value in row.items() if title.endswith("holds as judged")}
    assert sorted(verdicts.values()) == ["does not hold", "holds"]
    assert sorted(verdicts) == ["1 (pinned): holds as judged", "2 (off-pin): holds as judged"]
    assert row["1 (pinned): tolerated"] == "2.079 to 2.541"
    measured = row["1 (pinned): as judged"]
    low, high = measured["ci95"]
    assert low <= measured["value"] <= high and measured["value"] == pytest.approx(8.135 / 3.525)
    assert "claims: 1 of 2 hold as judged" in whole["headline"]["text"]
    (figure,) = section(whole, "claims")["figures"]
    bands = [r["band"] for r in figure["data"]["rows"]]
    assert bands and all(low < 1 < high for low, high in bands)


def test_nothing_empty_is_drawn(tool: Tool) -> None:
    """No section, table or column without content, and no sentence about claims that nothing tested."""
    done = tool.within("report", study(tool.folder / "a").path, "-o", "out", "--format", "md")
    assert done.code == 0, done.err
    whole = document(tool.folder / "out")
    names = [section["id"] for section in whole["sections"]]
    assert names[0] == "summary" and not {"claims", "clocks", "parity", "convergence"} & set(names)
    assert not any("claim" in card["label"].lower() for card in whole["cards"])
    for section in whole["sections"]:
        assert section["text"] or section["figures"] or section["tables"]
        for table in section["tables"]:
            assert table["rows"], table["id"]
            filled = [any(row[at] not in (None, "") for row in table["rows"]) for at in range(len(table["columns"]))]
            assert all(filled[1:]), table["id"]


def test_what_the_hardware_reached_is_bytes_and_operations_over_the_time(drawn: Path) -> None:
    row = next(r for r in rows_of(document(drawn), "roofline", "roofline") if r["problem"] == "36_RMSNorm"
               and r["solution"] == "optimized")  # fmt: skip
    size, ms = 2 * 1879048192 * 2, row["ms"]
    assert row["MB"] == pytest.approx(size / 1e6) and row["GB/s"] == pytest.approx(size / ms / 1e6)
    assert row["of copy"] == pytest.approx(size / ms / 1e6 / 4300) and row["class"] == "bf16"


def test_every_trace_has_its_convergence(drawn: Path) -> None:
    found = section(document(drawn), "convergence")
    (figure,) = found["figures"]
    assert "5 ms after round 1" in figure["alt"] and "3.5 ms after round 4" in figure["alt"]
    assert len(found["tables"][0]["rows"]) == 4


def test_every_row_has_its_command_its_reason_and_its_hashes(drawn: Path) -> None:
    whole = document(drawn)
    parser, commands = main.parser(), rows_of(whole, "again", "again")
    for row in commands:
        words = shlex.split(row["command"])
        assert words[0] == "repro"
        args = parser.parse_args(words[1:])
        assert isinstance(args, argparse.Namespace)
    planned = sum(report["planned"] for report in whole["reports"])
    log = rows_of(whole, "log", "log")
    assert len(commands) == len(log) == planned
    assert "the container ran out of memory" in {row["notes, skips and reasons"] for row in log}
    assert {row["file"] for row in rows_of(whole, "files", "files")} >= {"rows.jsonl"}


def test_a_command_asks_for_what_its_run_asked(tool: Tool) -> None:
    """Quick, with parity, at a budget of its own: and nothing that is so by itself."""
    from repro.records.options import Options

    options = Options(timing_budget_s=7.0, compile_timeout_s=20.0, parity=True).on("cuda").to_json()
    path = theirs(tool.folder / "a", parameters={"options": options})
    assert tool.within("report", path, "-o", "out", "--format", "md").code == 0
    (row,) = rows_of(document(tool.folder / "out"), "again", "again")
    asked = "repro benchmark 36 --artifacts theirs --size full --device cuda --engine docker"
    assert row["command"] == f"{asked} --parity --budget-s 7"


@pytest.mark.slow
def test_a_command_of_a_report_measures_its_row_again(judge_tool: Tool) -> None:
    """A solution that the bundle kept, judged once more from there."""
    solution = config.ARTIFACTS_DIR / "oracle" / "L1_36_RMSNorm.py"
    assert judge_tool("evaluate", solution, *CPU, "--no-timing").code == 0
    (bundle,) = judge_tool.bundles()
    assert judge_tool("report", bundle, "-o", "out", "--format", "md").code == 0
    (row,) = rows_of(document(judge_tool.folder / "out"), "again", "again")
    words = shlex.split(row["command"])[1:]
    words[1] = str(judge_tool.results / words[1])
    again = judge_tool(*words, "--json", "again.json")
    assert again.code == 0, again.err
    (entry,) = strict_json((judge_tool.folder / "again.json").read_text())["results"]
    assert (entry["problem"], entry["verdict"]) == ("L1_36", "correct") and entry["time_ms"] is None


class Page(HTMLParser):
    """What a page holds: tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag


def test_the_page_loads_nothing_and_is_labelled(drawn: Path) -> None:
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
    assert counts["caption"] == counts["table"] > 8 and counts["h1"] == 1 and counts["svg"] >= 6
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in tags and "default-src 'none'" in text


def test_no_figure_names_a_date_or_a_version(drawn: Path) -> None:
    for figure in re.findall(r"<svg .*?</svg>", (drawn / "report.html").read_text(), re.DOTALL):
        assert "<metadata" not in figure and "dc:date" not in figure and "matplotlib.org" not in figure


@pytest.mark.clock
def test_a_report_of_thirteen_problems_is_drawn_in_five_seconds(tool: Tool) -> None:
    times = {"eager": 4.0, "eager_tf32": 2.0, "compile": 3.0, "compile_tf32": 1.5, "mine": 1.0}
    names = catalogue.ids()
    assert len(names) == 13
    script = {name: result(name, times) | seen(seconds=60.0, timed=(20.0, 55.0)) for name in names}
    bundle = bundle_of(tool.folder, "evaluate", script, {n: {"problem": n, "file": f"{n}.py"} for n in names})
    began = time.monotonic()
    done = tool("report", bundle.path, "-o", "out")
    assert done.code == 0, done.err
    assert time.monotonic() - began < 5
    assert len(rows_of(document(tool.folder / "out"), "correctness", "correctness")) == 13


@pytest.mark.slow
def test_a_bundle_takes_its_own_page_and_still_verifies(tool: Tool) -> None:
    path = study(tool.folder / "a").path
    done = tool("report", path, "--format", "html,tex")
    assert done.code == 0, done.err
    assert {"report.html", "report.tex", "report.md", "report.json"} <= manifest(path)["files"].keys()
    checked = tool.within("verify", path)
    assert "planned against done" in checked.out and "report.html" not in checked.out, checked.out


def test_a_folder_of_its_own_leaves_the_bundles_as_they_were(tool: Tool) -> None:
    path = study(tool.folder / "a").path
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    done = tool.within("report", path, "-o", "out")
    assert done.code == 0 and "2 of 5 correct" in done.out
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert sorted(f.name for f in (tool.folder / "out").iterdir()) == sorted(FILES)


def test_figures_are_files_of_their_own_where_asked(tool: Tool) -> None:
    path = theirs(tool.folder / "a")
    assert tool.within("report", path, "-o", "out", "--format", "svg").code == 0
    files = sorted((tool.folder / "out/figures").iterdir())
    named = [f["id"] for s in document(tool.folder / "out")["sections"] for f in s["figures"]]
    assert sorted(file.stem for file in files) == sorted(named) and len(files) == 4
    for file in files:
        assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("args", "words"),
    [(("--format", "pdf"), "no format pdf"), (("--format", ","), "no format was named"),
     (("-o", "taken"), "cannot write to"), (("-o", "out", "--artifacts", "nowhere"), "nowhere")],
)  # fmt: skip
def test_wrong_use_is_one_line(tool: Tool, args: tuple[str, ...], words: str) -> None:
    (tool.folder / "taken").write_text("a file")
    done = tool.within("report", study(tool.folder / "a").path, *args)
    assert done.code == 1 and words in done.complaint


def test_times_of_the_cpu_are_shown_nowhere(tool: Tool) -> None:
    assert tool.within("report", study(tool.folder / "a", "cpu").path, "-o", "out").code == 0
    whole = document(tool.folder / "out")
    assert "times are not a measurement" in whole["headline"]["text"]
    assert not {"speedups", "roofline"} & {section["id"] for section in whole["sections"]}
    titles = [column["title"] for column in section(whole, "summary")["tables"][0]["columns"]]
    assert titles == ["problem", "verdict", "relative L2 error", "precision"]


def test_bundles_of_other_kernels_are_not_passed_off_as_the_same(tool: Tool) -> None:
    a, b = theirs(tool.folder / "a"), theirs(tool.folder / "b", versions=NEWER)
    assert tool.within("report", a, b, "-o", "out", "--format", "md").code == 0
    assert "Not the same texts" not in (tool.folder / "out/report.md").read_text()
    rows = b / "rows.jsonl"
    rows.write_text(re.sub(r'"content": "\w+"', '"content": "0123456789abcdef"', rows.read_text()))
    done = tool.within("report", a, b, "-o", "out", "--format", "md")
    assert done.code == 2 and "fails verification" in done.out
    assert "**Error.** B: This bundle fails `repro verify`" in (tool.folder / "out/report.md").read_text()
    assert "Not the same texts, A against B" in (tool.folder / "out/report.md").read_text()


def test_what_the_judges_clock_does_not_vouch_for_is_marked(tool: Tool) -> None:
    script = {"a": result("L2_99", {"eager": 0.04, "mine": 0.01})}
    script["a"]["results"][0] |= {"verdict": "correct", "reasons": []}  # no GPU is so fast
    path = bundle_of(tool.folder, "evaluate", script, {"a": {"problem": "L2_99", "file": "a.py"}}).path
    assert tool.within("report", path, "-o", "out", "--format", "svg").code == 0
    found = section(document(tool.folder / "out"), "speedups")
    assert any(text.startswith("UNCONFIRMED") for text in found["text"])
    figures = [*found["figures"], *section(document(tool.folder / "out"), "summary")["figures"]]
    assert len(figures) == 2 and all("(unconfirmed)" in figure["alt"] for figure in figures)
    assert " ?" in (tool.folder / "out/figures/bars-evaluate-A.svg").read_text()


def test_names_of_solutions_are_text_in_every_format(tool: Tool) -> None:
    script = {"a": result("L1_36", {"eager": 4.0, "mine": 3.6})}
    path = bundle_of(tool.folder, "evaluate", script, {"a": {"problem": "L1_36", "file": HOSTILE}}).path
    assert tool.within("report", path, "-o", "out").code == 0
    text = (tool.folder / "out/report.html").read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text
    assert r"\_\%\$\#\{x\}\textasciitilde{}\textasciicircum{}" in (tool.folder / "out/report.tex").read_text()
    lines = (tool.folder / "out/report.md").read_text().splitlines()
    assert any(r"~^\|\`" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_what_is_not_installed_is_a_missing_prerequisite(
    drawn: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Document.model_validate(document(drawn))
    for name in [n for n in sys.modules if n.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PrerequisiteError, match=missing):
        page.render(whole)


@pytest.mark.parametrize(
    ("kind", "cell", "text"),
    [("ratio", Quantity(value=1.5, ci95=[1.4, 1.6]), "1.50x [1.40, 1.60]"), ("ms", Quantity(value=1.0, ci95=[0.9, 1.1]),
      "1 [0.9, 1.1]"), ("percent", 0.345, "34.5 %"), ("scientific", 0.0, "0"), ("text", None, "–"), ("ms", None, "–"),
     ("verdict", "DIFFERS", "✗\u00a0DIFFERS"), ("verdict", "BLOCKED", "○\u00a0BLOCKED"), ("integer", 12345, "12,345")],
)  # fmt: skip
def test_cells(kind: str, cell: Cell, text: str) -> None:
    assert cells.text(kind, cell) == text


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
def test_the_page_in_a_browser(drawn: Path, browser: Browser, width: int, scheme: str) -> None:
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


def test_tables_are_sorted_and_filtered(drawn: Path, browser: Browser) -> None:
    browser.look(1280)
    browser.open(drawn / "report.html")
    told = browser.evaluate(SORT)
    assert told["up"] == sorted(told["up"]) != told["before"]
    assert told["down"] == sorted(told["down"], reverse=True) != told["up"]
    assert (told["said"], told["now"]) == ("ascending", "descending")
    names, count = browser.evaluate(FILTER)
    assert names == ["L1_36/oracle/0"] and count == "1 of 8 rows"


def test_numbers_are_sorted_as_numbers(drawn: Path, browser: Browser) -> None:
    browser.look(1280)
    browser.open(drawn / "report.html")
    values = browser.evaluate("""(function () {
      const table = document.getElementById("roofline-table");
      const at = Array.from(table.tHead.rows[0].cells).findIndex(c => c.textContent === "GB/s");
      table.tHead.rows[0].cells[at].querySelector("button").click();
      return Array.from(table.tBodies[0].rows).map(r => Number(r.cells[at].dataset.sort));
    })()""")
    assert len(values) > 3 and values == sorted(values)


def test_without_scripts_every_row_stands_there(drawn: Path, browser: Browser) -> None:
    browser.look(360, script=False)
    browser.open(drawn / "report.html")
    browser.look(360)
    assert browser.evaluate("document.querySelectorAll('button, input').length") == 0
    rows = sum(len(t["rows"]) for s in document(drawn)["sections"] for t in s["tables"])
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == rows


def test_printed_it_is_dark_on_white_and_within_the_sheet(drawn: Path, browser: Browser, tmp_path: Path) -> None:
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


def test_the_first_result_is_on_the_first_screen(drawn: Path, browser: Browser) -> None:
    """The first row of the table on a desktop, the first cards on a phone; evidence is closed."""
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    for width, height, first in ((1280, 800, "#summary-table tbody tr"), (390, 844, ".cards div:nth-child(4)")):
        browser.look(width)
        browser.open(drawn / "report.html")
        assert browser.evaluate(bottom.format(first)) < height
    assert browser.evaluate("document.querySelectorAll('details.section[open]').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(drawn: Path, browser: Browser, tmp_path: Path, scheme: str) -> None:
    axe = os.environ.get("AXE_CORE")
    if not axe:
        pytest.skip("AXE_CORE does not name a file of axe-core")
    text = (drawn / "report.html").read_text()
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    file = tmp_path / "page.html"
    file.write_text(text.replace("</body>", f"<script>{Path(axe).read_text()}</script></body>"))
    browser.look(1280, scheme=scheme)
    browser.open(file)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = browser.evaluate("axe.run().then(r => [r.passes.length, r.violations.map(v => [v.id, v.nodes[0].html])])")
    assert found[0] > 20 and found[1] == []
