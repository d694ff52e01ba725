"""What is published under artifacts/results: packed bundles, and tables of those that are not kept."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from repro import config, fingerprint
from repro.artifacts import sources
from repro.bundle import storage, verify
from repro.bundle.storage import ARCHIVE, Archive
from repro.bundle.write import Bundle
from repro.records.result import JudgeResult
from repro.records.verdict import Verdict
from repro.studies import artifact_study, self_test

ROOT, PUBLISHED = config.ROOT, config.ARTIFACTS_DIR / "results"
BUNDLES = sorted(file.parent for file in PUBLISHED.glob("*/*/manifest.json"))
# A name of a bundle in a document, with its folder or without.
NAMED = re.compile(r"\b\d{8}T\d{6}Z-(?:run|benchmark|fixtures|evaluate|self-test)\b")
RATIOS = {"eager": "speedup_eager", "compile": "speedup_compile", "best_same_class": "speedup_best"}
COLUMNS = ["bundle", "problem", "solution", "verdict", "class", "time_ms", "time_low_ms", "time_high_ms", "eager_ms",
           "compile_ms", "speedup_eager", "speedup_compile", "speedup_best", "best", "floor_share", "hot_ms",
           "published_protocol_ms", "control", "control_low", "control_high"]  # fmt: skip


def number(value: float | None) -> str:
    """Five significant digits, or nothing."""
    return "" if value is None else f"{value:.5g}"


def facts(bundle: Bundle) -> dict[str, str]:
    """The line of a bundle in bundles.csv."""
    told = bundle.manifest
    stacks = [fingerprint.stack(machine).label for machine in bundle.fingerprints().values()]
    machines = [str(machine["values"]["gpu_name"]["value"]) for machine in bundle.fingerprints().values()]
    ends = [datetime.fromisoformat(str(told[name])) for name in ("started", "finished")]
    return {
        "bundle": f"{bundle.path.parent.name}/{bundle.name}",
        "bundle_id": str(told.get("bundle_id") or ""),
        "date": str(told["started"])[:10],
        "verb": str(told["verb"]),
        "machine": "; ".join(dict.fromkeys(machines)),
        "stack": "; ".join(dict.fromkeys(stacks)),
        "fingerprint": "; ".join(bundle.fingerprints()),
        "status": str(told["status"]),
        "rows": f"{sum(map(bundle.done, told['plan']))} of {len(told['plan'])}",
        "wall_s": f"{(ends[1] - ends[0]).total_seconds():.0f}",
    }


def figures(bundle: Bundle) -> list[dict[str, str]]:
    """The lines of a bundle in history.csv: one a solution that is no negative control and no round."""
    found = []
    for row in bundle.records().values() if bundle.manifest["verb"] in ("run", "benchmark", "evaluate") else ():
        if row.judged and not row.control and row.rounds is None:
            name = f"{bundle.path.parent.name}/{bundle.name}"
            found += [line(name, row.problem, row.judged, entry) for entry in row.judged.results]
    return found


def line(name: str, problem: str, result: JudgeResult, entry: Verdict) -> dict[str, str]:
    time, speedup, control = entry.time_ms, entry.speedup, result.timing.aa
    baselines = result.baselines_ms
    values = {
        "time_ms": time and time.median,
        "time_low_ms": time and time.ci95[0],
        "time_high_ms": time and time.ci95[1],
        "eager_ms": baselines.get("eager"),
        "compile_ms": baselines.get("compile"),
        **{column: speedup[base].ratio if base in speedup else None for base, column in RATIOS.items()},
        "floor_share": entry.floor_fraction,
        "hot_ms": entry.hot_ms,
        "published_protocol_ms": result.parity_ms.get(entry.solution),
        "control": control and control.ratio,
        "control_low": control and control.ci95[0],
        "control_high": control and control.ci95[1],
    }
    words = {
        "bundle": name,
        "problem": problem,
        "solution": entry.solution,
        "verdict": entry.verdict,
        "class": entry.precision_class or "",
        "best": speedup["best_same_class"].baseline or "" if "best_same_class" in speedup else "",
    }
    return words | {column: number(value) for column, value in values.items()}  # fmt: skip


def table(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("artifacts/*/NOTES.md")]


def test_bundles_are_packed_and_verify():
    """An interrupted one says so and has no other fault; no archive holds a machine's identity."""
    assert 6 <= len(BUNDLES) <= 14
    for path in BUNDLES:
        found = verify.verify(path)
        assert found.state == ("interrupted" if Bundle.open(path).manifest["status"] == "interrupted" else "ok")
        files = storage.find(path)
        assert isinstance(files, Archive) and files.name == path.name
        assert {file.name for file in path.iterdir()} - {"report.md"} == {ARCHIVE, "manifest.json"}
        for name in files.entries():
            text = (files.read(name) or b"").decode()
            assert not re.search(r"GPU-[0-9a-f]{8}-|/(root|home|work)/", text), f"{path.name}: {name}"


def test_documents_name_bundles_that_exist():
    """A link leads to a packed bundle; a bundle that is only named is at least in bundles.csv."""
    known = {entry["bundle"].partition("/")[2] for entry in table("bundles.csv")}
    for document in documents():
        text = document.read_text()
        for path in re.findall(r"artifacts/results/([\w-]+/\d{8}T\d{6}Z-[\w-]+)", text):
            assert PUBLISHED / path in BUNDLES, f"{document.name} names {path}"
        for name in NAMED.findall(text):
            assert name in known, f"{document.name} names {name}"


def test_tables_of_all_bundles_agree_with_the_bundles():
    """bundles.csv has a line for each bundle that is kept or named; lines of kept bundles are computed again.

    history.csv has what documents cite of bundles no longer kept, and lines of one that is: those are computed again.
    """
    bundles, history = table("bundles.csv"), table("history.csv")
    by_name = {entry["bundle"]: entry for entry in bundles}
    assert len(by_name) == len(bundles) and list(history[0]) == COLUMNS
    assert {entry["bundle"] for entry in history} <= by_name.keys()
    named = {name for document in documents() for name in NAMED.findall(document.read_text())}
    shown = {entry["bundle"].partition("/")[2] for entry in history}
    assert shown <= named and len(shown & {path.name for path in BUNDLES}) == 1
    for path in BUNDLES:
        bundle = Bundle.open(path)
        wanted = facts(bundle)
        assert by_name[wanted["bundle"]] == wanted
        made = figures(bundle)
        assert all(entry in made for entry in history if entry["bundle"] == wanted["bundle"])


def test_the_self_test_says_what_the_documentation_does():
    """No cheat passed, and results.md names every honest kernel rejected."""
    (path,) = (path for path in BUNDLES if path.name.endswith("-self-test"))
    bundle = Bundle.open(path)
    cases = self_test.outcomes(bundle)
    wrong = [case.case for case in cases if case.complaints]
    text = (ROOT / "docs" / "records" / "results.md").read_text()
    skipped = bundle.manifest["parameters"]["skipped"]
    assert f"{len(cases)} cases on four H200s of one host, pinned stack, {len(skipped)} skipped" in text
    assert f": {len(cases) - len(wrong)} were judged as expected" in text
    assert all(f"`{name}`" in text for name in wrong)


def test_tracked_files_are_below_6_MB():
    """Those of the working tree: an untracked file does not count, a changed one does."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this tree has no git history")
    files = (ROOT / name for name in listed.stdout.split("\0"))
    sizes = Counter({file: file.stat().st_size for file in files if file.is_file() and not file.is_symlink()})
    assert sizes.total() < 6_000_000, sizes.most_common(10)


@pytest.mark.slow
def test_a_bundle_whose_kernels_are_withheld_can_be_shared(tool):
    """Its rows keep the hashes of texts that the bundle does not hold."""
    bundle = PUBLISHED / "h200-pinned" / "20261124T133107Z-benchmark"
    done = tool.within("share", bundle, "-o", "out")
    done.succeeded()
    assert verify.verify(tool.folder / "out" / bundle.name).state == "ok"


# What every kernel of the published study holds, whatever it computes.
OF_A_KERNEL = (b"@triton.jit", b"tl.load(", b"tl.store(", b"def kernel_function")


def test_no_published_bundle_holds_a_line_of_a_fetched_kernel():
    """Their repository states no licence to copy. Where it has been fetched, its own lines are searched for too."""
    theirs = [path for path in BUNDLES if Bundle.open(path).manifest["parameters"].get("shipped") is False]
    assert theirs
    fetched = sources.named(artifact_study.PUBLISHED).folder
    lines = (line.strip() for file in fetched.glob("*/**/*.py") for line in file.read_bytes().splitlines())
    marks = {*OF_A_KERNEL, *(line for line in lines if len(line) > 24 and b"import" not in line)}
    for path in theirs:
        bundle = Bundle.open(path)
        for row in bundle.records().values():
            given = [each for each in row.inputs or [] if each.name != "fixture.json"]
            assert given and all(each.withheld and not each.kept for each in given), row.row
        archive = Archive(path / ARCHIVE)
        for name in archive.entries():
            content = archive.read(name) or b""
            assert not any(mark in content for mark in marks), f"{path.name}: {name}"
