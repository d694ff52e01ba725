"""The problem of a job at its sizes: what is derived for it, and what it is refused for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from repro.engines.job import run
from repro.engines.settled import settle
from repro.errors import NoFunction, PrerequisiteError
from repro.problems import sizes
from repro.records.fixture import FixtureRecord
from repro.records.job import Job
from repro.records.options import Options
from repro.records.result import JudgeResult

FILE = """
import torch

n = 4096

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand(n, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Jobs of two files; the second draws random numbers."""
    for at, result in enumerate(("x.relu()", "torch.rand_like(x)")):
        (tmp_path / f"{at}.py").write_text(FILE.format(result=result))
    return [Job(str(at), "fixture", f"{at}.py", size="smoke", device="cpu") for at in range(2)]


def test_what_suites_say_of_a_shipped_problem_is_derived_for_another(jobs, tmp_path):
    threads = torch.get_num_threads()
    assert settle(jobs[0], tmp_path).fitting("cpu").batch_inputs == (0,)
    with pytest.raises(NoFunction, match="draws random numbers"):
        settle(jobs[1], tmp_path).fitting("cpu")
    assert torch.get_num_threads() == threads


def test_memory_is_looked_at_when_a_problem_is_judged(jobs, tmp_path, monkeypatch):
    settled = settle(jobs[0], tmp_path)
    monkeypatch.setattr(sizes, "free_bytes", lambda: 1 << 20)
    with pytest.raises(PrerequisiteError, match="this machine has"):
        settled.fitting("cpu")


def test_a_problem_that_is_no_function_of_its_inputs_is_unjudgeable_with_its_reason(jobs, tmp_path):
    """As L3_35, whose Model draws its first state: a finding, and no failure of the tool."""
    own = tmp_path / "own.py"
    own.write_text((tmp_path / "1.py").read_text().replace("class Model", "class ModelNew"))
    evaluated = replace(
        jobs[1], verb="evaluate", solutions=[("own", "own.py", "ModelNew")], options=Options(timing=False)
    )
    fixture = FixtureRecord.model_validate(run(jobs[1], tmp_path, print))
    assert fixture.refused == "Model of 1 draws random numbers" and fixture.degenerate["kind"] == "no function"
    (entry,) = JudgeResult.model_validate(run(evaluated, tmp_path, print)).results
    assert entry.verdict == "unjudgeable" and "no function of its inputs" in entry.reasons[0].detail
