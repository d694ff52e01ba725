"""`repro verify` on bundles as they are published, written, killed, edited and forged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, manifest, rows
from sampled import seen

from repro import config
from repro.bundle import evidence, seal, verify
from repro.bundle.statement import PROVENANCE, TEST_RESULT
from repro.bundle.write import Bundle, plan_digest
from repro.fingerprint import digest
from repro.records.fingerprint import Fingerprint
from repro.records.job import Outcome
from repro.runs.rows import _result
from repro.system import jsonio
from repro.system.digest import tree_digest
from repro.system.jsonio import Json

STATEMENTS = (PROVENANCE, TEST_RESULT)


def states(path: Path) -> dict[str, str]:
    return {check.check: check.state for check in verify.verify(path).checks}


def failed(path: Path) -> list[str]:
    return list(verify.verify(path).failed)


def machine() -> Json:
    """A small fingerprint with the ids of its values."""
    values = {"gpu_name": {"value": "NVIDIA H200", "source": "nvml", "status": "ok", "class": "H"}}
    ids = {"sku_id": digest(values, "H"), "fingerprint_id": digest(values, "HCV")}
    return {"schema_version": 1, "taken": "now", "device": "cuda", "off_pin": {}, "values": values} | ids


def written(results: Path, verb: str = "run") -> Path:
    """A closed bundle of two judged rows, one correct and timed, one not."""
    bundle = Bundle.create(results, verb, ["a", "b"], {"size": "full"})
    bundle.declare(b"[claim]\n")
    found = bundle.fingerprint(Fingerprint.model_validate(machine()))
    time_ms = {"median": 2.0, "ci95": [1.9, 2.1], "iqr": 0.1, "n": 3}
    good = {"problem": "P", "solution": "mine", "verdict": "correct", "reasons": [], "precision_class": "fp32",
            "rel_l2": 1e-7, "time_ms": time_ms, "speedup": {"eager": {"ratio": 2.0, "ci95": [1.9, 2.1]}}}  # fmt: skip
    bad = {"problem": "P", "solution": "mine", "verdict": "incorrect", "reasons": [{"code": "rel_l2"}]}
    throttled = {"hw_thermal": (4.0, 4.1)}
    samples = {"mine": {"gated": {"device_ms": [1.9, 2.0, 2.1]}}}
    for name, entry in (("a", good), ("b", bad)):
        text = f"# {name}\n".encode()
        inputs = [{"name": "solution_0.py", "sha256": seal.sha256(text), "kept": bundle.keep("mine.py", text)}]
        content = seal.sha256(b"solution_0.py" + bytes.fromhex(inputs[0]["sha256"]))[:16]
        result = {"results": [entry], "samples_ms": samples} | seen(throttled, seconds=5.0, timed=(2.0, 4.5))
        kept = _result(bundle, name, Outcome(name, "done", result))
        assert kept is not None
        bundle.add({"row": name, "content": content, "inputs": inputs, "status": "done", "error": "", "wall_s": 1.5,
                    "ended": "2999-01-01T00:00:00Z", "fingerprint_id": found, "result": kept.to_json()})  # fmt: skip
    bundle.finish("complete")
    return bundle.path


# -- what is written verifies


def test_written_bundle_passes_every_check(tmp_path):
    found = states(written(tmp_path))
    # no report was drawn, the bundle is a folder, and no agent wrote its solutions
    skipped = {"report", "copies beside the archive", "schema of the study"}
    assert {name: state for name, state in found.items() if state != "ok"} == dict.fromkeys(skipped, "skipped")


def test_the_code_is_hashed_as_the_specification_says():
    """Every file of the package: a changed prompt, price or PTX is other code. The command is the specification's."""
    command = "find repro -type f ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == tree_digest(config.PACKAGE)


def test_statements_name_files_inputs_code_and_verdicts(tmp_path):
    path = written(tmp_path)
    files = {n: d for n, d in manifest(path)["files"].items() if n not in STATEMENTS}
    provenance, result = (json.loads((path / name).read_text()) for name in STATEMENTS)
    for told in (provenance, result):
        assert {entry["name"]: entry["digest"]["sha256"] for entry in told["subject"]} == files
    resolved = {e["name"]: e["digest"] for e in provenance["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert {name for name in files if name.startswith("inputs/")} < resolved.keys()
    assert resolved["repro"] == {"dirHash": tree_digest(config.PACKAGE)} and "requirements/image.txt" in resolved
    tests = {"result": "FAILED", "passedTests": ["a: mine"], "warnedTests": [], "failedTests": ["b: mine"]}
    assert tests.items() <= result["predicate"].items()


# -- what is changed is found


def close_anew(path: Path, change: Callable[[Json], None] = lambda told: None) -> None:
    """What a careless forger does: all hashes made anew, statement and bundle id too."""
    told = manifest(path)
    change(told)
    told["plan_digest"] = plan_digest(told["plan"], told["parameters"])
    found = evidence.read(path)
    files = {name: seal.digest(path, name) or "" for name in seal.names(path)}
    seal.close(path, told, found.rows, files)
    jsonio.write(path / "manifest.json", told)


def edit_row(path: Path, name: str, change: Callable[[Json], None]) -> None:
    found = rows(path)
    change(found[name])
    (path / "rows.jsonl").write_bytes(jsonio.lines(found.values()))


def first(row: Json) -> Any:
    return row["result"]["results"][0]


def windows(row: Json) -> Any:
    return row["result"]["telemetry"]["windows"]


FORGED = {
    "better time": ("a", lambda row: first(row)["time_ms"].update(median=1.95), "times and samples"),
    "fewer samples": ("a", lambda row: first(row)["time_ms"].update(n=2), "times and samples"),
    "ratio out of its interval": ("a", lambda r: first(r)["speedup"]["eager"].update(ratio=3.0), "times and samples"),
    "made correct": ("b", lambda row: first(row).update(verdict="correct"), "verdicts"),
    "reasons taken away": ("b", lambda row: first(row).update(reasons=[]), "verdicts"),
    "verdict of no such word": ("b", lambda row: first(row).update(verdict="fine"), "schema of rows"),
    "another machine": ("a", lambda row: row.update(fingerprint_id="0" * 12), "fingerprints"),
    "another content": ("a", lambda row: row.update(content="0" * 16), "solutions"),
    "result of a failed row": ("a", lambda row: row.update(status="failed"), "status of rows"),
    "another id": ("a", lambda row: row.update(row="c"), "plan"),
    "throttling taken away": ("a", lambda row: windows(row)["timing"]["reasons"].pop("hw_thermal"), "telemetry"),
    "throttling put in": ("a", lambda row: windows(row)["timing"]["reasons"].update(sw_thermal=0.1), "telemetry"),
    "another series": ("a", lambda row: row["result"]["telemetry"].update(file="claims.toml"), "telemetry"),
    "no series": ("a", lambda row: row["result"]["telemetry"].update(file="../a.json"), "telemetry"),
    "measured before the claims": ("a", lambda row: row.update(ended="2001-01-01T00:00:00Z"), "claims"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_row_that_contradicts_itself_is_found_although_all_hashes_are_new(what, tmp_path):
    path = written(tmp_path)
    name, change, check = FORGED[what]
    edit_row(path, name, change)
    assert "hashes" in failed(path)
    close_anew(path)
    wrong = failed(path)
    assert check in wrong and not {"hashes", "bundle id", "statement"} & set(wrong)


def test_an_exchanged_solution_fingerprint_or_claims_file_is_found(tmp_path):
    path = written(tmp_path)
    for name, check in (("inputs/*", "solutions"), ("fingerprints/*", "fingerprints"), ("claims.toml", "claims")):
        (file, *_) = sorted(path.glob(name))
        content = file.read_bytes()
        file.write_bytes(content.replace(b"H200", b"H100").replace(b"[", b" [").replace(b"#", b"##"))
        close_anew(path)
        assert failed(path) == [check]
        file.write_bytes(content)
        close_anew(path)


def test_a_plan_made_shorter_after_the_run_is_found(tmp_path):
    path = written(tmp_path)
    told = manifest(path)
    jsonio.write(path / "manifest.json", told | {"plan": ["a"], "bundle_id": None})
    assert {"plan", "bundle id"} <= set(failed(path))


def test_files_that_came_and_went_are_found(tmp_path):
    path = written(tmp_path)
    (path / "notes.txt").write_text("mine")
    (path / "inputs/.hidden").write_text("mine")
    (path / "link").symlink_to(path / "rows.jsonl")
    (path / "linked").symlink_to(path / "inputs")
    next((path / "inputs").glob("*-mine.py")).unlink()
    found = verify.verify(path).failed
    foreign = ["inputs/.hidden", "link", "linked", "notes.txt"]
    assert [reason.split()[0] for reason in found["no foreign files"].reasons] == foreign
    assert found["hashes"].reasons[0].endswith("is missing") and "solutions" in found


def test_a_bundle_of_another_schema_fails(tmp_path):
    path = written(tmp_path)
    for version in (1, 3):
        close_anew(path, lambda told, version=version: told.update(schema_version=version))
        assert "schema version" in failed(path)


def test_nonsense_fails_its_check_without_failing_the_tool(tmp_path, tool):
    for name, text in (("rows.jsonl", '{"row": "a"}\n[]\n'), ("statement.json", "[1]"), ("manifest.json", "{}")):
        path = written(tmp_path / name)
        (path / name).write_text(text)
        done = tool.within("verify", path)
        assert done.code == 2 and "Traceback" not in done.err and "FAILED" in done.out


def test_a_dash_writes_json_to_the_terminal(tmp_path, tool):
    done = tool.within("verify", written(tmp_path / "a"), "--json", "-", "--quiet")
    assert json.loads(done.out[: done.out.rindex("}") + 1])["bundles"] and not list(tool.folder.glob("-"))


# -- killed

WRITER = """
import pathlib, sys, time
from repro.records.job import Job, Outcome
from repro.engines.base import Engine, Slots
from repro.runs.progress import Progress
from repro.runs.loop import Run
from repro.records.row import Planned
from repro.runs.rows import Row

class Slow(Engine):
    name, device = "local", "cuda"
    description = {"engine": "local"}
    def capacity(self): return Slots({"a": "", "b": ""})
    def _attempt(self, jobs, timeout_s, progress): ...
    def submit(self, jobs, progress):
        for job in jobs:
            time.sleep(0.02)
            yield Outcome(job.id, "done", {"telemetry": {"of": job.id * 500}}, wall_s=0.0)

jobs = [Job(f"row{n}", "fingerprint", files={"solution_0.py": b"# %d" % n}) for n in range(150)]
rows = [Row(Planned(row=job.id), job) for job in jobs]
run = Run(Slow(), pathlib.Path(sys.argv[1]), Progress(), resume=True)
bundle = run.open("run", rows, {"size": "smoke"})
print("begun", flush=True)
run.execute(rows, bundle, lambda row: "", together=7)
"""


def start_writer(results: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(results)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=90)
    return process.returncode


def without_time(found: dict[str, Json]) -> dict[str, Json]:
    return {name: {k: v for k, v in row.items() if k != "ended"} for name, row in found.items()}


@pytest.mark.slow
def test_a_run_killed_at_ten_random_points_resumes_to_the_same_rows(tmp_path):
    """With two jobs at once. And between two of them says what is missing."""
    dice = random.Random(2611)
    assert ended(start_writer(tmp_path / "whole")) == 0
    (whole,) = (tmp_path / "whole").iterdir()
    counts = []
    for _ in range(10):
        with start_writer(tmp_path / "killed") as process:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            (path,) = (tmp_path / "killed").iterdir()
            assert counts or verify.verify(path).state == "running"
            time.sleep(dice.uniform(0, 0.15))
            process.kill()
        told = {check.check: check.reasons for check in verify.verify(path).checks}
        counts.append(len(rows(path)) if (path / "rows.jsonl").exists() else 0)
        there = rows(path) if counts[-1] else {}
        missing = [f"{name}: the run ended before it" for name in manifest(path)["plan"] if name not in there]
        assert told["planned against done"][1:] == missing
        assert told["planned against done"][0].startswith(f"{150 - counts[-1]} of 150 planned rows were not measured")
        assert states(path)["planned against done"] == "interrupted"
        assert told["hashes"] == ["no hashes: the run has not ended, or its process was killed"]
    assert counts == sorted(counts), "no row that was there went"
    with (path / "rows.jsonl").open("a") as stream:
        stream.write('{"row": "b", "sta')
    assert set(failed(path)) <= {"fingerprints"}, "half a line is what a killed process leaves, and no damage"
    assert states(path)["planned against done"] == "interrupted"
    assert ended(start_writer(tmp_path / "killed")) == 0
    (path,) = (tmp_path / "killed").iterdir()
    assert without_time(rows(path)) == without_time(rows(whole))
    assert (path / "rows.jsonl").read_text().count("\n") == 150, "each row was measured once"
    assert len(manifest(path)["attempts"]) == 11
    assert failed(path) == [] or failed(path) == ["fingerprints"], "made-up rows have no machine"
