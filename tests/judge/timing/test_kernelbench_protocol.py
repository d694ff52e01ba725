"""KernelBench's own evaluation beside the judge's verdict: on the CPU, where times are no measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import CPU, smoke_problem, strict_json

from repro import config
from repro.judge.processes import launcher as launch
from repro.judge.timing import published_protocol
from repro.judge.timing.published_protocol import TRIALS
from repro.records.verdict import Verdict
from repro.report import correctness
from repro.studies import self_test
from repro.system.jsonio import Json

CLIPS = config.ROOT / "tests/adversarial/B12_clips_inputs.py"
HEAD = "import os\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    def __init__(self, *args):\n"
HEAD += "        super().__init__()\n\n    def forward(self, x):\n        "
SOURCES = {
    "wrong": HEAD + "return x\n",
    "narrow": HEAD + "return x[:, :1]\n",
    "raising": HEAD + "raise ValueError('not here')\n",
    "dying": HEAD + "print('last words', flush=True)\n        os._exit(7)\n",
    "not_python": "class ModelNew(",
}


def measured(tmp_path: Path, **sources: str) -> Json:
    """Return what KernelBench says of these solutions of L1_36."""
    solutions = []
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
        solutions.append((name, tmp_path / f"{name}.py", "ModelNew"))
    problem = smoke_problem()
    found = published_protocol.kernelbench(problem, solutions, {}, "cpu", lambda line: None, 30.0)
    assert not launch.current().workers(), "nothing is left running"
    return found


@pytest.mark.slow
def test_a_right_solution_passes_and_others_fail_with_the_reason(tmp_path):
    own = smoke_problem().path.read_text().replace("Model", "ModelNew")
    found = measured(tmp_path, own=own, **SOURCES)
    assert found["own"].correct and found["own"].passed == TRIALS and found["own"].speedup > 0
    assert not found["own"].measurement and found["own"].tolerance == 1e-4
    words = {"wrong": "largest difference", "narrow": "the shape is", "raising": "ValueError: not here",
             "dying": "last words", "not_python": "SyntaxError"}  # fmt: skip
    for name, word in words.items():
        assert found[name].correct is False and word in found[name].why, found[name]
        assert found[name].ms is None


def test_another_entry_and_a_solution_that_hung_are_not_run():
    problem = smoke_problem()
    solutions = [("kernel", CLIPS, "kernel_function"), ("hung", CLIPS, "ModelNew")]
    found = published_protocol.kernelbench(problem, solutions, {"hung": "timeout"}, "cpu", lambda line: None)
    assert [entry.correct for entry in found.values()] == [None, None]
    assert "ModelNew" in found["kernel"].why and "timeout" in found["hung"].why


@pytest.mark.parametrize("answer", [{"passed": "5"}, {"passed": True}, {}, {"passed": 5, "ms": -1, "eager_ms": 1}])
def test_what_a_solution_forges_becomes_no_number(answer):
    found = published_protocol._kernelbench_verdict(answer, 1e-4, measurement=False)
    assert found.ms is None and found.speedup is None


def test_fast_p_counts_correct_solutions_that_are_faster():
    def entry(correct, speedup, verdict, ratio, word="FAST"):
        theirs = {"correct": correct, "speedup": speedup, "measurement": True, "trials": 5, "tolerance": 1e-4}
        over = {"eager": {"ratio": ratio, "ci95": [ratio, ratio], "word": word}}
        return Verdict.model_validate({"problem": "", "solution": "", "reasons": [], "kernelbench": theirs,
                                       "verdict": verdict, "speedup": over})  # fmt: skip

    entries = [entry(True, 3.0, "correct", 1.5), entry(True, 1.2, "incorrect", 9.0), entry(False, None, "correct", 0.5),
               entry(True, 1.1, "correct", 1.1, "UNCONFIRMED")]  # fmt: skip
    found = correctness.fast(entries)
    assert found["kernelbench"] == {"0": 0.75, "1": 0.75, "2": 0.25}
    assert found["judge"] == {"0": 0.75, "1": 0.25, "2": 0.0}
    assert correctness.sentence(entries).endswith("verdicts differ on 2 of 4")
    assert correctness.fast([entries[0].model_copy(update={"kernelbench": None})]) == {}


@pytest.mark.slow
def test_evaluate_shows_both_verdicts_on_a_cheat_that_kernelbench_accepts(tool):
    (case,) = self_test.cases(["adversarial"], [CLIPS.stem])
    file = tool.folder / CLIPS.name
    file.write_bytes(case.source())
    asked = ("--problem", case.header.problem, "--parity", "kernelbench", "--no-timing", *CPU, "--json", "found.json")
    done = tool("evaluate", file, *asked)
    done.succeeded()
    found = strict_json((tool.folder / "found.json").read_text())
    (entry,) = found["results"]
    assert entry["verdict"] == "incorrect" and entry["kernelbench"]["correct"] is True
    assert found["fast_p"] == {"kernelbench": {"0": 1.0}, "judge": {"0": 0.0}}
    assert "verdicts differ on 1 of 1" in done.out
