"""The README cannot drift: its help text and its tables are the tool's own output and the published bundles' content.

REPRO_UPDATE_DOCS=1 rewrites the blocks instead of comparing them.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

import pytest

from repro import jsonio, settings
from repro.bundle.write import latest
from repro.report import markdown, model

README = settings.ROOT / "README.md"
PUBLISHED = settings.ARTIFACTS_DIR / "results"
REPORT = settings.ROOT / "docs" / "report"
STACKS = {"h200-pinned": "pinned stack", "h200-newer": "newer stack"}


def help_text():
    environment = os.environ | {"COLUMNS": "100"}
    command = [sys.executable, str(settings.ROOT / "entrypoint.py"), "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.rstrip()


def section(text, title):
    """One `## ` section of a report, with its title as a bold line."""
    found = re.search(rf"^## ({title}.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return f"**{found.group(1)}**\n{found.group(2).rstrip()}"


def published(stack, verb):
    bundle = latest(PUBLISHED / stack, (verb,))
    return bundle, markdown.render(model.build(bundle))


def results_block():
    parts = []
    for stack, words in STACKS.items():
        bundle, text = published(stack, "benchmark")
        machine = next(iter(model.build(bundle)["machines"].values()))
        path = bundle.path.relative_to(settings.ROOT)
        parts.append(
            f"Artifact study, {words}, one machine ([bundle]({path})): {machine}\n\n" + section(text, "Artifacts")
        )
    return "\n\n".join(parts)


def run_block():
    bundle, text = published("h200-pinned", "run")
    machine = next(iter(model.build(bundle)["machines"].values()))
    path = bundle.path.relative_to(settings.ROOT)
    return f"`make run` on one H200, pinned stack ([bundle]({path})): {machine}\n\n" + section(text, "oracle")


BLOCKS = {"help": lambda: f"```\n{help_text()}\n```", "run": run_block, "results": results_block}


@pytest.mark.parametrize("name", BLOCKS)
def test_readme_block_is_what_the_tool_says(name):
    text = README.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.S)
    wanted = BLOCKS[name]() + "\n"
    if os.environ.get("REPRO_UPDATE_DOCS"):
        README.write_text(pattern.sub(lambda found: found.group(1) + wanted + found.group(3), text))
        return
    assert pattern.search(text).group(2) == wanted, "run REPRO_UPDATE_DOCS=1 pytest tests/test_docs.py"


def test_the_published_report_is_what_the_readmes_command_draws(tmp_path):
    """From the published bundles, byte by byte: page, JSON and figures."""
    text = README.read_text().replace("\\\n", "")
    (names,) = re.findall(r"^\$repro report (.+) -o docs/report --format html,svg", text, re.M)
    bundles = [settings.ROOT / name for name in names.split()]
    folder = REPORT if os.environ.get("REPRO_UPDATE_DOCS") else tmp_path
    command = [sys.executable, str(settings.ROOT / "entrypoint.py"), "report", *map(str, bundles), "-o", str(folder)]
    subprocess.run([*command, "--format", "html,svg"], capture_output=True, check=True)
    drawn = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    known = {file.relative_to(REPORT): file.read_bytes() for file in REPORT.rglob("*") if file.is_file()}
    assert drawn.keys() == known.keys()
    assert [name for name in drawn if drawn[name] != known[name]] == [], "run REPRO_UPDATE_DOCS=1 pytest"
    for picture in re.findall(r"!\[.+\]\((docs/report/\S+)\)", README.read_text()):
        assert (settings.ROOT / picture).exists()


def test_published_bundles_are_whole():
    """Every file of a published bundle has the hash that its manifest says, and no file is missing or extra."""
    manifests = sorted(PUBLISHED.rglob("manifest.json"))
    assert manifests
    for manifest in manifests:
        files = json.loads(manifest.read_text())["files"]
        found = {
            str(f.relative_to(manifest.parent)): hashlib.sha256(f.read_bytes()).hexdigest()
            for f in manifest.parent.rglob("*")
            if f.is_file() and f != manifest
        }
        assert found == files, manifest.parent


def test_published_bundles_hold_no_identity():
    """No UUID, hostname or path of a machine stands in a published bundle."""
    for file in PUBLISHED.rglob("*"):
        if file.is_file():
            text = file.read_text()
            assert not re.search(r"GPU-[0-9a-f]{8}-", text), file
            assert not re.search(r"/(root|home|work)/", text), file


def test_published_rows_are_complete():
    """Every planned row of a published bundle was measured, and its fingerprint is there; a bundle whose run was
    interrupted says so, lies apart from the others, and lacks the last rows alone."""
    for manifest in PUBLISHED.rglob("manifest.json"):
        said = json.loads(manifest.read_text())
        plan, cut = said["plan"], said["status"] == "interrupted"
        rows = {row["row"]: row for row in jsonio.lines(manifest.parent / "rows.jsonl")}
        done = [name for name, row in rows.items() if row["status"] == "done"]
        assert said["status"] == "complete" or manifest.parent.parent.name in ("h200-cut", "h200-busy")
        assert done == plan[: len(done)] if cut else set(plan) == set(done)
        for row in rows.values():
            assert (manifest.parent / "fingerprints" / f"{row['fingerprint_id']}.json").exists()
