"""Bundles that are given away: identities planted in every kind of file are nowhere in the copy, which still verifies.

What is planted is put together from parts, so that no file of this project names a folder of one machine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Tool, manifest, rows
from sampled import seen

from repro import config, fingerprint
from repro.bundle import share
from repro.bundle.write import Bundle
from repro.engines.base import Attempt, Engine
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.runs.rows import Row
from repro.system import jsonio
from repro.system.jsonio import Json

HOST, USER, SERIAL = "gpu-box-17", "mallory", "1654922003817"
UUID = "6f1c2a34-9b7d-4e11-8c55-0a9d3f2b7e60"
HOME = "/" + f"home/{USER}"
FOLDER = f"{HOME}/secret-project/kernels"
SCRATCH = "/" + "scratch/group-7/run-3"
KEY = "sk-" + "ant-api03-" + "Zq8Lw2Rt5Xv9Kd1Pf4"
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2"
MAIL = f"{USER}@example-lab.org"
ADDRESS = "10.42.7.19"
IMAGE = f"registry.wolfram-lab.example:5000/group-7/repro@sha256:{'ab' * 32}"
PUBLIC_IMAGE = f"nvidia/cuda:12.8.1@sha256:{'cd' * 32}"
PLANTED = (
    HOST,
    USER,
    SERIAL,
    UUID,
    "secret-project",
    "group-7",
    KEY,
    TOKEN,
    MAIL,
    "example-lab",
    ADDRESS,
    "atlas-login",
    "node0042",
    "wolfram-lab",
)
SOURCE = f'''"""Tuned on {HOST} by {USER}."""
import os
PATH = "{FOLDER}/cache"  # GPU-{UUID}
class ModelNew:
    """See {FOLDER}/notes.md, ask {MAIL}."""
    def forward(self, x):
        return x * 2 / 1
'''
CLEAN = "class ModelNew:\n    def forward(self, x):\n        return x * 2 / 1\n"
ERROR = (
    f'Traceback: File "{FOLDER}/solution_0.py", line 3: cannot reach {HOST}.cluster.local:8080 ({ADDRESS}); '
    f"gcc -I{FOLDER}/include -L{SCRATCH}/lib failed; ANTHROPIC_API_KEY={KEY}; https://{USER}:{TOKEN}@example.org/x; "
    f"device GPU-{UUID}, serial {SERIAL}, USER={USER}"
)


def machine() -> Json:
    """A fingerprint that tells too much."""
    told = {
        "gpu_name": ("NVIDIA H200", "H"), "driver": ("580.1", "V"), "torch": ("2.9.1+cu128", "V"),
        "nvidia_packages": ({"nvidia-cublas": "10.3.9.90"}, "V"), "triton": ("3.5.1", "V"), "python": ("3.12.3", "V"),
        "environment": ({"TRITON_PTXAS_PATH": f"{FOLDER}/ptxas"}, "C"), "gpu_uuid_hash": ("ab12ab12ab12", "I"),
        "gpu_uuid": (f"GPU-{UUID}", "I"), "cpu_model": (f"of {HOST}", "C"),
        "gpu_serial": (int(SERIAL), "I"), "hostname": (HOST, "I"), "user": (USER, "I"),
    }  # fmt: skip
    values = {n: {"value": v, "source": f"read on {HOST}", "status": "ok", "class": c} for n, (v, c) in told.items()}
    ids = {name: fingerprint.digest(values, c) for name, c in (("sku_id", "H"), ("fingerprint_id", "HCV"))}
    return {
        "schema_version": 1,
        "taken": "2026-11-21T12:00:00Z",
        "device": "cuda",
        "off_pin": {},
        "values": values,
    } | ids


class Told(Engine):
    """An engine whose jobs tell all about their machine."""

    name, device = "local", "cuda"

    def __init__(self) -> None:
        self.description = {"engine": "local", "host": HOST, "cwd": FOLDER, "repo_digests": [IMAGE, PUBLIC_IMAGE]}

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Any) -> Attempt:
        (job,) = jobs
        if "bad" in job.id:
            yield Outcome(job.id, "failed", error=ERROR, fingerprint=machine())
            return ""
        verdict = {
            "problem": "P",
            "solution": USER,
            "verdict": "error",
            "reasons": [{"code": "raised", "detail": ERROR}],
        }
        clocks = {"device_ms": [1.0], "host_ms": [1.1], "wall_ms": [1.2], "seal_ms": [0.1]}
        result = seen() | {"results": [verdict], "samples_ms": {"eager": {"gated": clocks, "hot_ms": 1.0}}}
        result["telemetry"] |= {"log": [f"{n}: {ERROR}" for n in range(3)], HOST: {"uuid": UUID}}
        yield Outcome(job.id, "done", result, fingerprint=machine())
        return ""


@pytest.fixture
def talkative(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed bundle with identities in rows, errors, logs, names of files, solutions, fingerprints and parameters."""
    monkeypatch.setattr(share, "_sharer", lambda: [USER, HOST])
    files = {"solution_0.py": SOURCE.encode(), "problem.py": CLEAN.encode()}
    jobs = [Job(name, "evaluate", "problem.py", solutions=((f"{USER}_kernel", "solution_0.py", "ModelNew"),),
                  files=files) for name in (f"P/{USER}", "P/bad")]  # fmt: skip
    planned = [Row(Planned(row=job.id, problem="P", file=f"{USER}.py"), job) for job in jobs]
    parameters = {"size": "full", "device": "cuda", "artifacts": FOLDER, "note": f"serial: {SERIAL}"}
    bundle = Bundle.create(tool.results, "evaluate", [row.id for row in planned], parameters)
    bundle.declare(f'# written by {MAIL}\n[claim]\nmachine = "{HOST}"\n'.encode())
    bundle.file("logs/progress.log", f"{HOST} {ERROR}\r\n{ERROR.upper()}\n".encode())
    bundle.file("logs/host.json", jsonio.render({"hostname": "atlas-login", "host": {"value": "node0042"}}))
    bundle.file(f"logs/{HOST}.jsonl", (jsonio.dumps({"at": f"{SCRATCH}/x", "who": USER}) + "\n").encode())
    bundle.file("agents/P-arm-0/attempt-1/events.jsonl", f'{{"text": "{HOST}"}}\n'.encode())
    bundle.file("invalid_rows/P.json", jsonio.render({"error": ERROR}))
    bundle.file("report.html", f"<p>{HOST}</p>".encode())
    bundle.file("report.md", f"# on {HOST}\n\n[solution]({FOLDER}/a.py) of 2.9.1 at {ADDRESS}\n".encode())
    bundle.file("profile.bin", b"\x80\x00" + HOST.encode())
    bundle.manifest["argv"] = ["evaluate", f"{FOLDER}/kernel.py", "--problem", "P"]
    Run(Told(), bundle.path.parent, Progress()).execute(planned, bundle, lambda row: "")
    return bundle.path


def everything(folder: Path) -> str:
    """Names and contents of all files, in small letters, with JSON's escapes undone."""
    texts = [
        str(file.relative_to(folder)) + "\n" + file.read_bytes().decode()
        for file in folder.rglob("*")
        if file.is_file()
    ]
    return "\n".join(texts).encode().decode("unicode_escape", errors="replace").lower()


def states(tool: Tool, bundle: Path) -> dict[str, str]:
    done = tool.within("verify", bundle, "--json", "checks.json")
    (report,) = json.loads((tool.folder / "checks.json").read_text())["bundles"]
    assert done.code == (0 if report["passed"] else 2), done.err
    return {check["check"]: check["state"] for check in report["checks"]}


def test_no_planted_identity_is_in_the_copy_and_the_copy_verifies_as_the_bundle_did(talkative, tool):
    before = states(tool, talkative)
    assert [name for name, state in before.items() if state == "FAILED"] == ["planned against done"], "one row failed"
    (shared,) = share.share([talkative], tool.folder / "public")
    (copy,) = (tool.folder / "public").iterdir()
    text = everything(copy)
    assert {word for word in PLANTED if word.lower() in text} == set()
    assert states(tool, copy) == before | {"claims": "skipped"} and before["telemetry"] == "ok"
    left_out = shared.shared.left_out
    assert {name: left_out[name] for name in ("profile.bin", "claims.toml", "report.html")} == {
        "profile.bin": "files of this kind may hold identities",
        "claims.toml": "it has an identity",
        "report.html": "`repro report` draws it again",
    }
    places = {name.partition("/")[0] for name in manifest(copy)["files"]}
    assert places == {"fingerprints", "inputs", "rows.jsonl", "statement.json", "telemetry", "test-result.json"}
    assert shared.shared.identities.keys() == {"name", "uuid"}


def test_a_copy_of_a_copy_keeps_what_the_first_left_out(talkative, tool):
    (copy,) = share.share([talkative], tool.folder / "public")
    (again,) = share.share([Path(copy.bundle)], tool.folder / "again")
    assert copy.shared.left_out.items() <= again.shared.left_out.items() and copy.shared.left_out
    assert again.shared.original_bundle_id == copy.shared.original_bundle_id


def test_measurements_and_versions_stay_and_texts_without_identities(talkative, tool):
    share.share([talkative], tool.folder / "public")
    (copy,) = (tool.folder / "public").iterdir()
    (fingerprint_file,) = (copy / "fingerprints").iterdir()
    values = json.loads(fingerprint_file.read_text())["values"]
    assert values["nvidia_packages"]["value"] == {"nvidia-cublas": "10.3.9.90"}
    assert values["gpu_name"]["value"] == "NVIDIA H200" and values["cpu_model"]["value"] is None
    assert values.keys() <= fingerprint.classes.CLASS.keys() and values["environment"]["value"] == {}
    before, after = rows(talkative), rows(copy)
    assert [row["status"] for row in after.values()] == [row["status"] for row in before.values()]
    assert all(row["fingerprint_id"] == fingerprint_file.stem for row in after.values())
    assert after["P/bad"]["error"] == share.LEFT_OUT
    given = {text["name"]: text for row in after.values() for text in row["inputs"]}
    assert (copy / given["problem.py"]["kept"]).read_text() == CLEAN
    assert given["solution_0.py"]["withheld"] and "kept" not in given["solution_0.py"]
    clocks = [next(iter(side.values()))["result"]["samples_ms"] for side in (before, after)]
    assert clocks[0] == clocks[1]
    assert manifest(copy)["started"] == manifest(talkative)["started"]
    assert manifest(copy)["argv"] == ["evaluate", "kernel.py", "--problem", "P"]


def test_a_name_that_is_given_is_in_no_copy(tool):
    bundle = Bundle.create(tool.results, "evaluate", [], {})
    bundle.file("solutions/a/0/zaphod_kernel.py", b"x = 1\n")
    bundle.file("solutions/a/0/other.py", b"# thanks to Zaphod\n")
    bundle.finish("complete")
    share.share([bundle.path], tool.folder / "a")
    (copy,) = (tool.folder / "a").iterdir()
    assert "zaphod_kernel" in everything(copy)
    done = tool.within("share", bundle.path, "-o", "b", "--hide", "Zaphod")
    (copy,) = (tool.folder / "b").iterdir()
    assert done.code == 0 and "zaphod" not in everything(copy)


def test_only_bundles_that_are_shared_together_show_that_they_used_one_gpu(talkative, tool):
    other = talkative.with_name("20990101T000000Z-evaluate")
    shutil.copytree(talkative, other)
    together = share.share([talkative, other], tool.folder / "public")
    alone = share.share([other], tool.folder / "again")
    gpus = [next(iter(Bundle.open(Path(copy.bundle)).fingerprints().values()))["values"]["gpu_uuid_hash"]["value"]
            for copy in (*together, *alone)]  # fmt: skip
    assert gpus[0] == gpus[1] != gpus[2] and all(gpu.startswith("uuid-") for gpu in gpus)


@pytest.mark.parametrize("text", [f"# {MAIL}", f"p = '{HOME}/x'", f"p = '{SCRATCH}'", f"# {ADDRESS}", f"k = '{KEY}'",
                                  f"API_KEY={TOKEN}", f"# on {HOST}", f"# by {USER}", f"# GPU-{UUID}",
                                  f"# serial: {SERIAL}", f"# https://{USER}:{TOKEN}@example.org",
                                  "# of login-3.cluster.internal", "# C:\\Users\\x"])  # fmt: skip
def test_a_source_with_an_identity_is_withheld(monkeypatch, text):
    monkeypatch.setattr(share, "_sharer", lambda: [USER, HOST])
    assert share._Filter().identifies(f"import torch\n{text}\n")


def test_shipped_sources_have_no_identity():
    kept = share._Filter()
    files = [file for folder in (config.ROOT / "problems", config.ARTIFACTS_DIR) for file in folder.rglob("*.py")]
    assert [str(file) for file in files if kept.identifies(file.read_text())] == []
