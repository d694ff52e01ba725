"""`repro report --live` from another terminal: what runs, what is done, what is missing, and whether the run lives."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from conftest import manifest, strict_json, until

from repro.bundle.write import Bundle
from repro.cli.main import main
from repro.engines.base import Attempt, Engine, Slots
from repro.errors import UsageError
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs import status
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.runs.rows import Row


class Paused(Engine):
    """Runs three jobs at once and says so; the first fails, and the others wait until a test lets them end."""

    name, device = "local", "cuda"

    def __init__(self) -> None:
        self.running, self.go = threading.Barrier(3), threading.Event()
        self.description = {"engine": "local", "isolation": "none"}

    def capacity(self) -> Slots:
        return Slots({"a": "", "b": ""})

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Any) -> Attempt:
        if jobs[0].id == "row0":
            yield Outcome("row0", "failed", error="no space left")
            return ""
        progress(f"node-{jobs[0].id}: timing")
        self.running.wait(20)
        assert self.go.wait(20)
        yield Outcome(jobs[0].id, "done", {})
        return ""


def test_status_shows_what_runs_and_what_ended(tmp_path, capsys):
    engine, rows = Paused(), [Row(Planned(row=f"row{n}"), Job(f"row{n}", "fingerprint")) for n in range(3)]
    run = Run(engine, tmp_path, Progress(quiet=True), jobs=2)
    bundle = run.open("evaluate", rows, {})
    running = threading.Thread(target=run.execute, args=(rows, bundle, lambda row: ""))
    running.start()
    engine.running.wait(20)
    until(lambda: len(status.read(bundle.path)["running"]) == 2)
    assert main(["report", "--live", "--results", str(tmp_path), "--json", str(tmp_path / "s.json")]) == 0
    found = strict_json((tmp_path / "s.json").read_text())
    assert found["status"] == "running" and (found["done"], found["planned"]) == (0, 3)
    assert found["failed"] == {"row0": "failed: no space left"}
    assert {lane["line"] for lane in found["running"]} == {"node-row1: timing", "node-row2: timing"}
    shown = capsys.readouterr().out
    assert "0 of 3 rows done · 1 not measured · 2 running" in shown and "node-row1: timing" in shown
    engine.go.set()
    running.join(20)
    bundle.finish("incomplete")
    assert not (bundle.path / status.FILE).exists() and status.FILE not in manifest(bundle.path)["files"]
    assert main(["report", "--live", str(bundle.path)]) == 0
    shown = capsys.readouterr().out
    assert "incomplete: 2 of 3 rows done · 1 not measured · repeat its command with --resume" in shown
    assert "done: row1, row2\n" in shown


def test_a_run_whose_process_ended_has_died(tmp_path):
    pid = os.fork()
    if pid == 0:
        Bundle.create(tmp_path, "run", ["a"], {})
        os._exit(0)
    os.waitpid(pid, 0)
    found = status.read(status.find(tmp_path))
    assert found["status"] == "died" and found["running"] == []
    with pytest.raises(UsageError, match="no bundle in"):
        status.find(tmp_path / "empty")


def test_a_damaged_bundle_beside_a_run_is_not_opened(tmp_path):
    broken = Bundle.create(tmp_path, "run", ["x"], {})
    broken.add({"row": "x", "status": "done", "error": "", "result": {}})
    broken.finish("interrupted")
    (broken.path / "rows.jsonl").write_text("[1")
    live = Bundle.create(tmp_path, "run", ["a"], {})
    later = Bundle.create(tmp_path, "run", ["b"], {})
    later.finish("interrupted")
    assert status.find(tmp_path) == live.path
