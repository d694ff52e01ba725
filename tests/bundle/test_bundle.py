"""A bundle on disk: whole after any crash, strict JSON, hashed, and written by one process at a time."""

from __future__ import annotations

import gc
import hashlib
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import ROOT, manifest, small_disk, small_fingerprint, strict_json

from repro.bundle import storage
from repro.bundle.write import Bundle, latest
from repro.errors import BundleError, PrerequisiteError, UsageError
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.system import jsonio
from repro.system.jsonio import Json

PLAN = ["a", "b", "c"]
PARAMETERS = {"size": "smoke"}


def create(results: Path, plan: list[str] = PLAN) -> Bundle:
    return Bundle.create(results, "run", plan, PARAMETERS)


def resume(results: Path, plan: list[str] = PLAN) -> Bundle | None:
    gc.collect()  # a bundle that is no longer used gives its lock back, as the end of its process does
    return Bundle.resume(results, "run", plan, PARAMETERS)


def row(name: str, **values: Any) -> Json:
    return {"row": name, "status": "done", "error": "", "result": values}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The rows file of a bundle whose process ended after two rows of three."""
    bundle = create(tmp_path)
    bundle.add(row("a", value=1))
    bundle.add(row("b", value=2))
    return bundle.path / "rows.jsonl"


# -- crashes


INTERRUPTED = """
import os, pathlib, signal, sys, threading
from repro.engines.base import Engine
from repro.runs import loop
from repro.records.row import Planned
from repro.runs.rows import Row
from repro.records.job import Job, Outcome
from repro.errors import ReproError
from repro.runs.progress import Progress

point, real = int(sys.argv[2]), os.fsync
jobs = [Job(f"row{n}", "fingerprint", files={"solution_0.py": b"# %d" % n}) for n in range(2)]
rows = [Row(Planned(row=job.id), job) for job in jobs]
bundle = loop.Run(None, pathlib.Path(sys.argv[1]), Progress()).open("run", rows, {})
seen = 0

def fsync(number):
    global seen
    real(number)
    seen += 1
    if seen == point:
        os.kill(os.getpid(), signal.SIGINT)

class Slow(Engine):
    name, device, halted = "local", "cpu", threading.Event()
    description = {}
    def close(self, *, now=False): self.halted.set()
    def _attempt(self, jobs, timeout_s, progress):
        yield Outcome(jobs[0].id, "done", {"cell_spent_s": {"judge": 1}}, wall_s=0.0)
        os.kill(os.getpid(), signal.SIGINT)
        self.halted.wait()
        return "the job was ended with the run"

os.fsync = fsync
try:
    loop.Run(Slow(), bundle.path.parent, Progress()).execute(rows, bundle, lambda row: "", together=2)
except (ReproError, KeyboardInterrupt) as error:
    print(error)
"""


@pytest.mark.parametrize("point", range(1, 6))
def test_ctrl_c_at_any_write_keeps_and_counts_the_row(tmp_path, point):
    """The signal comes while the row's text, its fingerprint, the row, or what closes the bundle is written."""
    told = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-c", INTERRUPTED, str(tmp_path), str(point)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    (path,) = tmp_path.iterdir()
    bundle = Bundle.open(path)
    assert list(bundle.rows) == ["row0"], told.stderr
    assert bundle.manifest["status"] == "interrupted" and set(bundle.manifest["files"]) == set(digests(path))
    if point <= 3:  # later the run had told it, or was interrupted again while the bundle was closed
        assert "interrupted: 1 of 2 rows" in told.stdout


@pytest.mark.parametrize("length", [1, 20, len(jsonio.dumps(row("c"))) - 1])
def test_cut_last_line_is_dropped_and_its_row_can_be_added_again(begun, tmp_path, length):
    with begun.open("a") as stream:
        stream.write(jsonio.dumps(row("c"))[:length])
    bundle = resume(tmp_path)
    assert bundle is not None and list(bundle.rows) == ["a", "b"] and not bundle.done("c")
    bundle.add(row("c", value=3))
    assert [strict_json(line)["row"] for line in begun.read_text().splitlines()] == PLAN
    assert list(Bundle.open(begun.parent).rows) == PLAN


def test_last_line_that_lacks_only_its_end_is_kept(begun, tmp_path):
    with begun.open("a") as stream:
        stream.write(jsonio.dumps(row("c", value=3)))
    bundle = resume(tmp_path)
    assert bundle is not None and bundle.done("c")
    bundle.add(row("a", value=4))
    assert Bundle.open(begun.parent).rows["c"] == row("c", value=3)
    assert Bundle.open(begun.parent).rows["a"] == row("a", value=4), "the last row of an id counts"


def test_reading_does_not_change_a_cut_bundle(begun):
    text = begun.read_text() + '{"row": "c"'
    begun.write_text(text)
    assert list(Bundle.open(begun.parent).rows) == ["a", "b"]
    assert begun.read_text() == text


@pytest.mark.parametrize("line", ['{"row": "b", "sta', "[]", '{"status": "done"}', "\0\0\0"])
def test_damage_in_the_middle_is_reported(begun, line):
    lines = begun.read_text().splitlines()
    begun.write_text("\n".join([lines[0], line, lines[1]]) + "\n")
    with pytest.raises(BundleError, match=r"rows.jsonl is damaged"):
        Bundle.open(begun.parent)


# -- whose bundle it is


def test_bundle_in_use_is_not_resumed(tmp_path):
    used = create(tmp_path)
    assert resume(tmp_path) is None
    used.finish("interrupted")
    found = resume(tmp_path)
    assert found is not None and found.path == used.path


@pytest.mark.parametrize("status", ["running", "interrupted", "incomplete", "failed", "complete"])
def test_unfinished_bundle_is_resumed(tmp_path, status):
    path = create(tmp_path)
    path.finish(status, error="the engine went away")
    found = resume(tmp_path)
    assert (found is None) == (status == "complete")
    if found is not None:
        assert found.path == path.path and manifest(found.path)["status"] == "running"
        found.finish("complete")
        assert "error" not in manifest(found.path), "of an earlier attempt"


def test_the_report_of_an_earlier_attempt_is_not_kept(tmp_path):
    """It was drawn from fewer rows, so that the bundle would fail `repro verify` until it is drawn again."""
    first = create(tmp_path)
    for name in ("report.json", "report.md", "report.html", "figures/bars.svg", "tables/times.csv", "inputs/report.py"):
        first.file(name, b"drawn")
    first.finish("incomplete")
    (first.path / "figures" / "mine.svg").write_text("not of the bundle")
    found = resume(tmp_path)
    assert found is not None
    assert {file.relative_to(found.path).as_posix() for file in found.path.rglob("*") if file.is_file()} == {
        "figures/mine.svg", "inputs/report.py", "manifest.json", "statement.json", "test-result.json",
    }  # fmt: skip


def test_a_full_disk_while_a_bundle_is_taken_up_again_leaves_it_resumable(tmp_path, monkeypatch):
    first = create(tmp_path)
    first.file("report.json", b"drawn")
    first.finish("incomplete")
    with monkeypatch.context() as full:
        full.setattr(jsonio, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(BundleError, match="cannot write"):
            resume(tmp_path)
    found = resume(tmp_path)
    assert found is not None and not (found.path / "report.json").exists()


def test_bundle_finished_while_it_was_read_is_not_resumed(tmp_path, monkeypatch):
    """Another process writes its last row and ends, just before this one takes the bundle."""
    create(tmp_path, ["a"])
    hold = Bundle._hold

    def late(bundle: Bundle) -> bool:
        monkeypatch.setattr(Bundle, "_hold", hold)
        other = Bundle.open(bundle.path)
        other.add(row("a"))
        other.finish("complete")
        return hold(bundle)

    monkeypatch.setattr(Bundle, "_hold", late)
    assert resume(tmp_path, ["a"]) is None


def test_resume_with_nothing_to_resume_says_that_it_starts_anew(tmp_path, capsys):
    run = Run(cast(Any, None), tmp_path, Progress(), resume=True)
    first = run.open("fixtures", [], {})
    assert "nothing to resume" in capsys.readouterr().err
    first.finish("interrupted")
    again = run.open("fixtures", [], {})
    assert f"going on with {first.name}: 0 of 0 rows are measured" in capsys.readouterr().err
    assert again.path == first.path


def test_bundle_of_another_plan_is_not_resumed(tmp_path):
    create(tmp_path).finish("interrupted")
    assert resume(tmp_path, ["a"]) is None
    assert Bundle.resume(tmp_path, "run", PLAN, {"size": "full"}) is None
    assert Bundle.resume(tmp_path, "benchmark", PLAN, PARAMETERS) is None


def test_a_damaged_bundle_of_another_plan_is_left_alone(tmp_path):
    wanted = create(tmp_path)
    wanted.add(row("a"))
    wanted.finish("interrupted")
    for name, text in (("rows.jsonl", "[1"), ("manifest.json", "{")):
        other = create(tmp_path, ["x"])
        other.add(row("x"))
        other.finish("interrupted")
        (other.path / name).write_text(text)
    found = resume(tmp_path)
    assert found is not None and found.path == wanted.path


def test_a_damaged_fingerprint_is_named(tmp_path):
    bundle = create(tmp_path)
    bundle.fingerprint(small_fingerprint())
    for text in ("", "[1", "3"):
        (bundle.path / "fingerprints" / f"{'f' * 12}.json").write_text(text)
        with pytest.raises(BundleError, match=r"fingerprints/f+.json is damaged"):
            bundle.fingerprints()


def test_bundles_of_the_same_second_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        bundles = list(pool.map(lambda _: create(tmp_path), range(24)))
    assert len({bundle.path for bundle in bundles}) == 24
    assert all(manifest(bundle.path)["plan"] == PLAN for bundle in bundles)


def test_row_counts_as_done_only_for_the_text_that_it_judged(tmp_path):
    bundle = create(tmp_path)
    bundle.add(row("a") | {"content": "one"})
    bundle.add(row("c") | {"status": "failed"})
    assert bundle.done("a") and bundle.done("a", "one") and not bundle.done("a", "another")
    assert not bundle.done("b") and not bundle.done("c")


# -- what it says


def digests(bundle: Path) -> dict[str, str]:
    """The hashes of all files of a bundle but the manifest."""
    files = [f for f in bundle.rglob("*") if f.is_file() and f.name != "manifest.json"]
    return {str(f.relative_to(bundle)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_manifest_hashes_every_file(tmp_path):
    bundle = create(tmp_path)
    bundle.add(row("a"))
    bundle.file("solutions/oracle/0/a.py", b"pass\n")
    assert bundle.fingerprint(small_fingerprint()) == "f" * 12
    bundle.finish("incomplete")
    assert manifest(bundle.path)["files"] == digests(bundle.path)
    assert len(digests(bundle.path)) == 5, "rows, a solution, a fingerprint, the statements"

    bundle.file("report.md", b"# report\n")
    bundle.add(row("b"))
    assert manifest(bundle.path)["files"] != digests(bundle.path)
    bundle.finish("complete")
    assert manifest(bundle.path)["files"] == digests(bundle.path)


def test_rows_and_manifest_are_strict_json_whatever_the_numbers(tmp_path):
    numbers = {"inf": math.inf, "minus": -math.inf, "nan": math.nan, "tuple": (math.inf, 1.0), "plain": 0.5}
    bundle = Bundle.create(tmp_path, "run", PLAN, {"limit": math.inf})
    bundle.add(row("a", **numbers, nested=[{"distances": [numbers]}]))
    bundle.finish("complete", worst=math.nan)
    (line,) = (bundle.path / "rows.jsonl").read_text().splitlines()
    result = strict_json(line)["result"]
    expected = {"inf": "inf", "minus": "-inf", "nan": "nan", "tuple": ["inf", 1.0], "plain": 0.5}
    assert result == expected | {"nested": [{"distances": [expected]}]}
    assert manifest(bundle.path)["worst"] == "nan"
    assert float(result["inf"]) == math.inf and math.isnan(float(result["nan"])), "the words are what float() reads"


def test_row_of_several_lines_stays_on_one(tmp_path):
    bundle = create(tmp_path)
    bundle.add(row("a", text="two\nlines \u2028 and \x85 more"))
    bundle.add(row("b"))
    assert Bundle.open(bundle.path).rows == bundle.rows


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 2}'])
def test_manifest_of_something_else_is_no_bundle(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match="is not a bundle"):
        Bundle.open(tmp_path)


def test_the_kernels_of_a_search_among_results_are_no_bundle(tmp_path):
    bundle, kernels = create(tmp_path), tmp_path / "search" / "36_RMSNorm"
    kernels.mkdir(parents=True)
    for name in ("manifest.json", "problem.py"):
        (kernels / name).write_text("{}")
    assert storage.below(tmp_path) == [bundle.path]


def test_results_that_are_a_file_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for results in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(PrerequisiteError, match="Choose another --results"):
            create(results)
        assert resume(results) is None


# -- jsonio


def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "value.json"
    jsonio.write(file, {"old": True})
    with pytest.raises(TypeError):
        jsonio.write(file, {"new": object()})
    assert strict_json(file.read_text()) == {"old": True}
    assert list(tmp_path.iterdir()) == [file]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "size=64k"):
        yield tmp_path / "disk"


def test_full_disk_keeps_the_old_manifest_and_the_rows_before(tiny_disk):
    bundle = create(tiny_disk)
    bundle.add(row("a"))
    with pytest.raises(BundleError, match=r"No space left.*Rows that are kept: 1.*--resume.*-o DIR"):
        bundle.add(row("b", text="x" * (80 << 10)))
    with pytest.raises(BundleError, match="No space left"):
        bundle.finish("failed", error="x" * (80 << 10))
    assert manifest(bundle.path)["status"] == "running"
    path = bundle.path
    del bundle
    found = resume(tiny_disk)
    assert found is not None and found.path == path and list(found.rows) == ["a"]
    found.add(row("b"))
    assert list(Bundle.open(path).rows) == ["a", "b"]


# -- closed bundles


@pytest.fixture
def closed(tmp_path: Path) -> Bundle:
    """A bundle with a row, a solution and a report, closed."""
    bundle = create(tmp_path, ["a"])
    bundle.keep("mine.py", b"pass\n")
    bundle.add(row("a"))
    bundle.finish("complete")
    return bundle


def test_drawing_a_report_hides_no_change_of_what_was_measured(closed):
    before = manifest(closed.path)
    (closed.path / "rows.jsonl").write_text(jsonio.dumps(row("a", value=2)) + "\n")
    (closed.path / "foreign.txt").write_text("put here later")
    drawn = Bundle.open(closed.path)
    drawn.file("report.md", b"# another\n")
    drawn.finish(drawn.manifest["status"])
    after = manifest(closed.path)
    assert after["files"]["rows.jsonl"] == before["files"]["rows.jsonl"] and "foreign.txt" not in after["files"]
    assert after["files"]["report.md"] == hashlib.sha256(b"# another\n").hexdigest()
    assert after["finished"] == before["finished"] and after["bundle_id"] != before["bundle_id"]


def test_interrupted_bundle_that_was_edited_is_not_gone_on_with(tmp_path):
    bundle = create(tmp_path)
    bundle.add(row("a"))
    bundle.finish("interrupted")
    (bundle.path / "rows.jsonl").write_text(jsonio.dumps(row("a", value=2)) + "\n")
    with pytest.raises(BundleError, match=r"rows.jsonl changed after it was closed.*without --resume"):
        resume(tmp_path)


def test_half_written_files_of_a_killed_process_are_removed(begun, tmp_path):
    (begun.parent / ".manifest.json.123").write_text("{")
    found = resume(tmp_path)
    assert found is not None and not list(found.path.glob(".*"))


def test_report_of_a_bundle_that_is_being_written_leaves_its_manifest_alone(tmp_path):
    bundle = create(tmp_path)
    before = manifest(bundle.path)
    reader = Bundle.open(bundle.path)
    reader.file("report.md", b"# so far\n")
    reader.finish("running")
    assert manifest(bundle.path) == before


def test_a_text_is_kept_once(closed):
    bundle = create(closed.path.parent)
    bundle.file("solutions/a.py", b"pass\n")
    assert bundle.keep("again.py", b"pass\n") == "solutions/a.py"
    place = bundle.keep("adversarial/A01 zeros.py", b"other\n")
    assert place.startswith("inputs/") and place.endswith("-adversarial_A01_zeros.py")
    assert (bundle.path / place).read_bytes() == b"other\n"


def test_claims_come_before_the_first_row(tmp_path):
    bundle = create(tmp_path)
    bundle.declare(b"[claim]\n")
    bundle.add(row("a"))
    bundle.declare(b"[claim]\n")
    assert manifest(bundle.path)["claims"]["sha256"] == hashlib.sha256(b"[claim]\n").hexdigest()
    with pytest.raises(BundleError, match="declared before a run"):
        bundle.declare(b"[claim]\nlooser = true\n")


def test_bundle_of_a_later_schema_is_refused_by_name(closed, tool):
    later = manifest(closed.path) | {"schema_version": 3}
    jsonio.write(closed.path / "manifest.json", later)
    done = tool.within("report", closed.path)
    assert done.code == 1 and "its schema is 3" in done.complaint


def test_the_newest_bundle_is_the_newest_that_holds_a_row(tmp_path):
    """Neither a report nor --resume takes one that failed before its first row, where there is one with rows. A report
    takes one of any verb."""
    first, second = (Bundle.create(tmp_path, "run", ["a", "b"], {}) for _ in range(2))
    first.add({"row": "a", "status": "done", "result": {}})
    for bundle, status in ((first, "interrupted"), (second, "failed")):
        bundle.finish(status)
    assert first.path < second.path
    found = latest(tmp_path, ("run",))
    assert found is not None and found.path == first.path
    resumed = Bundle.resume(tmp_path, "run", ["a", "b"], {})
    assert resumed is not None and resumed.path == first.path
    resumed.finish("interrupted")
    later = Bundle.create(tmp_path, "self-test", ["a"], {})
    later.add(row("a"))
    found = latest(tmp_path, ("run", "self-test"))
    assert found is not None and found.path == later.path
