"""The problems of a folder's later jobs are settled in a process of their own, to the same as in the judge's."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from repro.engines.job import run
from repro.engines.problem_ahead import TIMED, Ahead, settle
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
        {init}

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand(n, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Jobs of six files; one draws random numbers, one ends its process."""
    results = ["x * 2", "x.relu()", "torch.rand_like(x)", "x.sum(1)", "x @ x.T", "x.tanh()"]
    for at, result in enumerate(results):
        init = "import os; os._exit(1)" if result == "x.sum(1)" else "pass"
        (tmp_path / f"{at}.py").write_text(FILE.format(result=result, init=init))
    return [Job(str(at), "fixture", f"{at}.py", size="smoke", device="cpu") for at in range(len(results))]


def test_later_jobs_find_what_they_would_have_derived_themselves(jobs: list[Job], tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    ahead = Ahead(jobs[:3], tmp_path)
    assert ahead.awaited == {"1", "2"}, "the first is needed at once"
    for job in jobs[:2]:
        assert ahead.settle(job) == settle(job, tmp_path)
    assert not ahead.awaited - {"2"} and ahead.settle(jobs[1]).problem.batch_inputs == (0,)
    refused = ahead.settle(jobs[2])
    with pytest.raises(NoFunction, match="draws random numbers"):
        refused.fitting("cpu")
    assert torch.get_num_threads() == threads


def test_a_job_that_failed_before_it_asked_costs_the_next_one_nothing(jobs: list[Job], tmp_path: Path) -> None:
    ahead = Ahead(jobs[:3] + jobs[5:], tmp_path)
    assert ahead.settle(jobs[5]).problem.path == tmp_path / "5.py" and not ahead.awaited


def test_where_the_process_ends_the_judge_settles_the_problem_itself(jobs: list[Job], tmp_path: Path) -> None:
    ahead = Ahead([jobs[0], jobs[3], jobs[4]], tmp_path)
    assert ahead.settle(jobs[4]) == settle(jobs[4], tmp_path) and not ahead.awaited


def test_nothing_is_settled_beside_timing_or_for_profiles_and_shipped_problems(jobs: list[Job], tmp_path: Path) -> None:
    timed = [
        [replace(jobs[0], verb="evaluate", options=Options(**{"timing": False, name: True})), *jobs[1:]]
        for name in TIMED
    ]
    profiles = [replace(job, verb="profile") for job in jobs]
    shipped = [replace(job, problem="L1_36") for job in jobs]
    assert not any(Ahead(each, tmp_path).awaited for each in (*timed, profiles, shipped, jobs[:1]))


def test_memory_is_looked_at_when_a_problem_is_judged(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Ahead(jobs[:2], tmp_path).settle(jobs[1])
    monkeypatch.setattr(sizes, "free_bytes", lambda: 1 << 20)
    with pytest.raises(PrerequisiteError, match="this machine has"):
        found.fitting("cpu")


def test_the_process_ends_with_the_judge(jobs: list[Job], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    if (judge := os.fork()) == 0:
        Ahead(jobs[:3], tmp_path)
        os.write(writing, b"begun")
        signal.pause()
    assert os.read(reading, 5) == b"begun"
    os.close(writing)  # reading ends once every other process that holds it has ended
    os.kill(judge, signal.SIGKILL)
    os.waitpid(judge, 0)
    assert os.read(reading, 1) == b""


def test_a_problem_that_is_no_function_of_its_inputs_is_unjudgeable_with_its_reason(
    jobs: list[Job], tmp_path: Path
) -> None:
    """As L3_35, whose Model draws its first state: a finding, and no failure of the tool."""
    own = tmp_path / "own.py"
    own.write_text((tmp_path / "2.py").read_text().replace("class Model", "class ModelNew"))
    evaluated = replace(
        jobs[2], verb="evaluate", solutions=[("own", "own.py", "ModelNew")], options=Options(timing=False)
    )
    fixture = FixtureRecord.model_validate(run(jobs[2], tmp_path, lambda job: settle(job, tmp_path), print))
    assert fixture.refused == "Model of 2 draws random numbers" and fixture.degenerate["kind"] == "no function"
    (entry,) = JudgeResult.model_validate(run(evaluated, tmp_path, lambda job: settle(job, tmp_path), print)).results
    assert entry.verdict == "unjudgeable" and "no function of its inputs" in entry.reasons[0].detail
