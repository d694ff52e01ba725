"""Tests of how the outcome of a job becomes a line of the bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro.bundle.write import Bundle
from repro.engines.base import outcomes
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs.rows import Row, keep
from repro.system.jsonio import Json

VERDICT = {"problem": "L1_36", "solution": "s", "verdict": "error", "reasons": [{"code": "raised", "detail": "no"}]}
JOB = Job("a/b", "evaluate", files={"solution_0.py": b"# of a\n"})


def kept(folder: Path, line: Json) -> Json:
    """The row of a bundle that a line of outcomes.jsonl gives."""
    bundle = Bundle.create(folder, "evaluate", [JOB.id], {})
    (outcome,) = outcomes(json.dumps({"job": JOB.id} | line) + '\n{"job": "cut sho')
    keep(bundle, Row(Planned(row=JOB.id, problem="L1_36"), JOB), outcome)
    bundle.finish("complete" if bundle.done(JOB.id) else "incomplete")
    return dict(Bundle.open(bundle.path).rows[JOB.id])


def test_a_row_holds_what_the_job_measured_without_defaults(tmp_path):
    result = {"results": [VERDICT], "margin": "inf", "wall_s": 1.5}
    row = kept(tmp_path, {"status": "done", "result": result})
    assert row["status"] == "done" and row["result"] == result


WRONG = {
    "wrong type": ({"results": [VERDICT | {"measurement": "no"}]}, "measurement: Input should be a valid boolean"),
    "a field is missing": ({"results": [{"problem": "L1_36"}]}, "results/0/verdict: Field required"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_outcome_that_fits_no_record_is_a_failed_row(tmp_path, name):
    result, why = WRONG[name]
    row = kept(tmp_path, {"status": "done", "result": result})
    assert (row["status"], row["result"]) == ("failed", None)
    assert row["error"].startswith("the job's outcome does not fit its record: ") and why in row["error"]


def test_a_row_names_the_machine_of_a_cluster(tmp_path):
    bundle = Bundle.create(tmp_path, "evaluate", [JOB.id], {})
    row = keep(bundle, Row(Planned(row=JOB.id), JOB), Outcome(JOB.id, "failed", error="no memory", node="a1"))
    assert (row.error, row.node) == ("no memory", "a1")
