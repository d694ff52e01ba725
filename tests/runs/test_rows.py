"""Tests of how the outcome of a job becomes a line of the bundle: what fits no record is refused and not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import strict_json

from repro.bundle import verify
from repro.bundle.write import Bundle
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs.rows import INVALID, Row, keep

VERDICT = {"problem": "L1_36", "solution": "s", "verdict": "error", "reasons": [{"code": "raised", "detail": "no"}]}
JOB = Job("a/b", "evaluate", files={"solution_0.py": b"# of a\n"})


def kept(folder: Path, result: dict[str, Any], columns: dict[str, Any] | None = None, **facts: Any) -> Bundle:
    """A closed bundle of one row with this result."""
    bundle = Bundle.create(folder, "evaluate", [JOB.id], {})
    planned = Planned(row=JOB.id, **columns or {"problem": "L1_36"})
    keep(bundle, Row(planned, JOB), Outcome(JOB.id, "done", result, **facts))
    bundle.finish("complete" if bundle.done(JOB.id) else "incomplete")
    return Bundle.open(bundle.path)


def test_a_valid_row_has_the_bytes_of_its_data(tmp_path: Path) -> None:
    """Keys stay in the order in which they were given, a whole number stays one, and no default is added."""
    result = {"wall_s": 1, "results": [dict(reversed(VERDICT.items()))], "margin": float("inf")}
    (line,) = (kept(tmp_path, result).path / "rows.jsonl").read_text().splitlines()
    assert line.endswith(', "result": ' + json.dumps(result | {"margin": "inf"}) + "}")


WRONG = {
    "unknown field": ({"results": [VERDICT | {"speed": 2}]}, "result/results/results/0/speed: Extra inputs are not"),
    "wrong type": ({"results": [VERDICT | {"measurement": "no"}]}, "measurement: Input should be a valid boolean"),
    "no result of a job": ({"value": 1}, "result/observed/value: Extra inputs are not permitted"),
    "no JSON": ({"results": [], "telemetry": {"file": Path("/x")}}, "PosixPath is not JSON serializable"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_result_that_fits_no_record_is_a_failed_row_and_kept_in_a_file(tmp_path: Path, name: str) -> None:
    result, why = WRONG[name]
    bundle = kept(tmp_path, result, wall_s=2.5)
    row = bundle.rows[JOB.id]
    assert (row["status"], row["result"], row["wall_s"]) == ("failed", None, 2.5)
    assert row["error"].startswith("the row does not fit its record: ") and why in row["error"]
    (file,) = (bundle.path / INVALID).iterdir()
    assert f"{INVALID}/{file.name}" in row["error"] and f"{INVALID}/{file.name}" in bundle.manifest["files"]
    assert strict_json(file.read_text())["result"] == json.loads(json.dumps(result, default=repr))
    assert not {"schema of rows", "solutions"} & verify.verify(bundle.path).failed.keys()


def test_columns_that_fit_no_record_are_left_out_of_the_failed_row(tmp_path: Path) -> None:
    row = kept(tmp_path, {"results": [VERDICT]}, {"problem": "L1_36", "colour": "red"}).rows[JOB.id]
    assert "colour: Extra inputs" in row["error"] and row["problem"] == "L1_36" and "colour" not in row


def test_a_failed_row_that_fits_no_record_keeps_its_own_reason(tmp_path: Path) -> None:
    bundle = Bundle.create(tmp_path, "evaluate", [JOB.id], {})
    row = keep(bundle, Row(Planned(row=JOB.id, colour="red"), JOB), Outcome(JOB.id, "failed", None, "no memory", -1.0))
    assert row.error.endswith("; no memory") and row.wall_s == 0.0 and len(bundle.records()) == 1
