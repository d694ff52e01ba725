"""`repro verify` on bundles as they are published, written, killed, edited and forged."""

from __future__ import annotations

import json
import random
import shutil
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
from repro.bundle.write import Bundle, plan_digest
from repro.fingerprint import digest
from repro.records import reading
from repro.records.fingerprint import Fingerprint
from repro.records.job import Outcome
from repro.records.row import Input
from repro.runs.rows import _result
from repro.system import jsonio


def states(path: Path) -> dict[str, str]:
    return {check.check: check.state for check in verify.verify(path).checks}


def failed(path: Path) -> list[str]:
    return list(verify.verify(path).failed)


def machine() -> dict[str, Any]:
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


@pytest.mark.slow
def test_a_real_run_verifies_is_drawn_again_and_verifies(smoke_results, tool):
    bundle = tool.results / "copied"
    shutil.copytree(next(smoke_results.glob("*-fixtures")), bundle)
    assert failed(bundle) == []
    before = manifest(bundle)
    assert tool.within("report", bundle, "--format", "html,tex").code == 0
    after = manifest(bundle)
    assert {"report.html", "report.tex", "report.md", "report.json"} <= after["files"].keys()
    assert failed(bundle) == []
    assert after["files"]["rows.jsonl"] == before["files"]["rows.jsonl"] and after["finished"] == before["finished"]
    done = tool.within("verify", "-v", bundle, "--id", after["bundle_id"][:12])
    assert done.code == 0 and "expected bundle id" in done.out
    assert tool.within("verify", bundle, "--id", "0" * 12).code == 2


@pytest.mark.slow
def test_the_statement_names_files_inputs_and_code(smoke_results):
    bundle = next(smoke_results.glob("*-fixtures"))
    told = json.loads((bundle / "statement.json").read_text())
    assert told["_type"] == "https://in-toto.io/Statement/v1" and told["predicateType"].startswith("https://slsa.dev/")
    implementations = {entry["name"]: entry["digest"]["sha256"] for entry in told["subject"]}
    assert implementations == {n: d for n, d in manifest(bundle)["files"].items() if n != "statement.json"}
    resolved = told["predicate"]["buildDefinition"]["resolvedDependencies"]
    by_name = {entry["name"]: entry["digest"] for entry in resolved}
    source = seal.sha256((config.PROBLEMS_DIR / "L1_36_RMSNorm.py").read_bytes())
    assert by_name["problems/L1_36_RMSNorm.py"] == {"sha256": source}
    assert "requirements/image.txt" in by_name and any("dirHash" in entry["digest"] for entry in resolved)
    assert told["predicate"]["repro_signature"].startswith("none: ")


# -- what is changed is found


@pytest.mark.slow
def test_any_changed_byte_of_any_file_is_found(tmp_path):
    """Every byte of the manifest, and of the other files, which are hashed whole, a few."""
    path = written(tmp_path)
    dice = random.Random(7)
    for file in [path / name for name in ["manifest.json", *seal.names(path)]]:
        content = file.read_bytes()
        whole = file.name == "manifest.json"
        for at in range(len(content)) if whole else [0, len(content) - 1, *dice.sample(range(len(content)), 3)]:
            other = bytes([(content[at] ^ (1 << dice.randrange(8)))])
            file.write_bytes(content[:at] + other + content[at + 1 :])
            found = evidence.read(path)
            wrong = [n for n in ("files are readable", "text of the manifest", "bundle id", "hashes", "schema version")
                     if verify._run(n, found).state == "FAILED"]  # fmt: skip
            assert wrong, f"{file.name} byte {at}: {content[at : at + 1]!r} became {other!r}"
        file.write_bytes(content)
    assert failed(path) == []


@pytest.mark.parametrize("name", ["manifest.json", "rows.jsonl", "statement.json"])
def test_a_changed_byte_is_exit_2_on_the_command_line(name, tool):
    path = written(tool.results)
    content = (path / name).read_bytes()
    (path / name).write_bytes(content.replace(b"1", b"2", 1))
    done = tool.within("verify", "-v", COLUMNS="200")
    assert done.code == 2 and "FAILED" in done.out and f"{name}" in done.out
    printed = [line for line in done.out.splitlines() if any(f" {check} " in f"{line} " for check in verify.CHECKS)]
    assert len(printed) >= len(verify.CHECKS), "all checks are run and printed"


def close_anew(path: Path, change: Callable[[dict[str, Any]], None] = lambda told: None) -> None:
    """What a careless forger does: all hashes made anew, statement and bundle id too."""
    told = manifest(path)
    change(told)
    told["plan_digest"] = plan_digest(told["plan"], told["parameters"])
    found = evidence.read(path)
    files = {name: seal.digest(path, name) or "" for name in seal.names(path)}
    inputs = {name: [Input(**given) for given in row["inputs"]] for name, row in found.rows.items()}
    seal.close(path, told, inputs, files)
    jsonio.write(path / "manifest.json", told)


def edit_row(path: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    found = rows(path)
    change(found[name])
    (path / "rows.jsonl").write_text("".join(jsonio.dumps(row) + "\n" for row in found.values()))


def first(row: dict[str, Any]) -> Any:
    return row["result"]["results"][0]


def windows(row: dict[str, Any]) -> Any:
    return row["result"]["telemetry"]["windows"]


FORGED: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
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


def test_a_folder_that_is_no_bundle_is_wrong_use(tool):
    for args, why in ((("nowhere",), "is not a bundle"), ((), "no bundle in")):
        done = tool.within("verify", *args)
        assert done.code == 1 and why in done.complaint


# -- schemas


@pytest.mark.parametrize("name", reading.FILES)
def test_every_record_refuses_an_empty_object(name):
    assert reading.complaints(name, {})


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


def without_time(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
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


@pytest.mark.slow
def test_four_runs_at_once_do_not_mix(tmp_path):
    processes = [start_writer(tmp_path) for _ in range(4)]
    assert [ended(process) for process in processes] == [0] * 4
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 4
    for path in paths:
        lines = [json.loads(line)["row"] for line in (path / "rows.jsonl").read_text().splitlines()]
        assert sorted(lines) == sorted(f"row{n}" for n in range(150)) and set(failed(path)) <= {"fingerprints"}
