"""compute-sanitizer over a solution: what its answers lead to. A program that answers as it does stands for it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import kernel_files, smoke_problem

from repro.errors import PrerequisiteError, SolutionError
from repro.judge import sanitizer
from repro.judge.implementation import Implementation
from repro.judge.session import JudgeSession
from repro.judge.timing import counters
from repro.problems import catalogue
from repro.records.options import Options

HEAD, DONE = "========= COMPUTE-SANITIZER\n", '\n==REPRO== {"done": true}\n'
OF_RACES = "========= RACECHECK SUMMARY: "
CLEAN = ("========= ERROR SUMMARY: 0 errors\n", f"{OF_RACES}0 hazards displayed (0 errors, 0 warnings)\n")
READ = (
    "========= Invalid __global__ read of size 4 bytes\n=========     at kernel+0x70\n"
    "========= ERROR SUMMARY: 2 errors\n"
)
RACE = f"========= Error: Race reported between Write and Read\n{OF_RACES}1 hazard displayed (1 error, 0 warnings)\n"
FIRST, SECOND = (HEAD + DONE + summary for summary in CLEAN)
KERNEL = "def kernel_function(x, num_features, eps=1e-5):\n    return x / (x.square().mean(1, True) + eps).sqrt()\n"


@pytest.fixture
def solution(tmp_path):
    (file := tmp_path / "mine.py").write_text(KERNEL)
    return Implementation("mine", file, "kernel_function", ["mine"])


@pytest.mark.parametrize(("answers", "code", "words"), [
    ([(FIRST, 0), (SECOND, 0)], None, ""),
    ([(HEAD + DONE + READ, 86)], "sanitizer", "memcheck: Invalid __global__ read of size 4 bytes / at kernel+0x70"),
    ([(HEAD + READ, 1)], "sanitizer", "memcheck: Invalid"),
    ([(FIRST, 86)], "sanitizer", "memcheck"),
    ([(FIRST, 0), (HEAD + DONE + RACE, 86)], "sanitizer", "racecheck: Error: Race reported"),
    ([(HEAD + CLEAN[0] + '\n==REPRO== {"error": "ValueError: no"}\n', 0)], "sanitizer_failed", "ValueError: no"),
    ([(FIRST, 1)], "sanitizer_failed", "ended with code 1"),
    ([(FIRST, None)], "sanitizer_failed", "killed after"),
    ([(HEAD + DONE, 0)], "sanitizer_failed", "ended with code 0"),
    ([("", 0)], "sanitizer_failed", "ended with code 0"),
    ([(FIRST, 0), ("", 139)], "sanitizer_failed", "racecheck: ; it ended with code 139"),
])  # fmt: skip
def test_only_two_clean_summaries_of_calls_that_ended_pass(answers, code, words, solution, monkeypatch):
    given = iter(answers)

    def below(command, device, problem, *more):
        assert problem.size == "smoke" and "/program" in command
        assert ("--padding" in command) == ("memcheck" in command), "a load beyond a tensor meets no other one"
        text, status = next(given)
        return counters.Ran(text, "killed after 9 s" if status is None else "", status, "user")

    monkeypatch.setattr(counters, "below", below)
    monkeypatch.setattr(sanitizer, "program", lambda: "/program")
    try:
        sanitizer.check(catalogue.load("L1_36"), solution, "cpu")
    except SolutionError as error:
        assert error.code == code and words in error.detail
    else:
        assert code is None
    assert next(given, None) is None


def test_without_the_program_nothing_is_judged(smoke_fixture, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    options = Options(device="cpu", checks=["sanitizer"])
    with pytest.raises(PrerequisiteError, match="compute-sanitizer is not on the PATH"):
        JudgeSession(smoke_problem(), smoke_fixture("L1_36"), options)


@pytest.mark.slow
def test_a_finding_makes_a_right_solution_wrong(smoke_fixture, monkeypatch, tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="repro-sanitizer-"))
    folder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    (tool := folder / "compute-sanitizer").write_text(
        f"#!{sys.executable} -I\nimport subprocess, sys\n"
        "command = sys.argv[sys.argv.index('application-only') + 1:]\nsubprocess.run(command, check=True)\n"
        "wrong = 'OUT' in open(command[-1] + '/solution.py').read()\n"
        f"print(({READ!r} if wrong else {CLEAN[0]!r}) if 'memcheck' in sys.argv else {CLEAN[1]!r})\n"
        "sys.exit(86 * wrong)\n"
    )
    tool.chmod(0o755)
    solutions = kernel_files(tmp_path, {"right": KERNEL, "outside": f"OUT = 1\n{KERNEL}"})
    options = Options(device="cpu", timing=False, checks=["sanitizer"])
    try:
        with JudgeSession(smoke_problem(), smoke_fixture("L1_36"), options) as judge:
            right, outside = judge.check(solutions)
    finally:
        shutil.rmtree(folder)
    assert right.verdict == "correct"
    assert outside.verdict == "incorrect" and [reason.code for reason in outside.reasons] == ["sanitizer"]
