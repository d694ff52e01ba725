"""Times of a warm session on a GPU: `python -m pytest tests/gpu/test_gpu_session.py -m gpu -s -p no:cacheprovider`.

For each problem at full size, one JSON line has every solution's times. It takes less than four minutes on an H200.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
import torch

from repro import config
from repro.fixtures import calibration
from repro.judge import session
from repro.judge.gpu.memory import handle
from repro.judge.implementation import Options
from repro.judge.session import JudgeSession, Solution
from repro.problems import catalogue
from repro.problems.catalogue import Problem

# A stack that is not the pinned one may warn of what it deprecates.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default"), pytest.mark.timeout(240)]

GPU = torch.device("cuda")
OPTIONS = Options(device="cuda", timeout_s=12)
SOLUTIONS = 10
# Most seconds, as medians: a check beyond the solution's compilation, and a check and a quick timing.
CHECK_S, CHECK_AND_TIME_S = 3.0, 5.0
# Solutions over which the GPU's memory must not grow, and what its allocations may differ by.
MANY, SAME_BYTES = 50, 64 << 20
BROKEN = {"crash": "import ctypes\n        ctypes.string_at(0)", "hang": "while True:\n            pass"}


def oracle(folder: Path, problem: Problem, number: int) -> Solution:
    """The shipped solution of a problem, as a source of its own."""
    file = folder / f"oracle_{number}.py"
    (shipped,) = config.ORACLE_DIR.glob(f"{problem.id}_*.py")
    file.write_text(f"{shipped.read_text()}\n\nVARIANT = {number}\n")
    return f"oracle {number}", file, "ModelNew"


def broken(folder: Path, problem: Problem, name: str) -> Solution:
    """The problem's own Model with a forward that crashes or hangs."""
    file = folder / f"{name}.py"
    header = "\n\nclass ModelNew(Model):\n    def forward(self, *inputs):\n        "
    file.write_text(f"{problem.path.read_text()}{header}{BROKEN[name]}\n")
    return name, file, "ModelNew"


def fixture_of(problem: Problem) -> Any:
    found = calibration.build(problem, GPU)
    torch.cuda.empty_cache()
    return found


def outcome(entry: Any) -> tuple[str, str | None, list[str]]:
    """Verdict, precision class and the codes of all reasons."""
    return entry.verdict, entry.precision_class, [reason.code for reason in entry.reasons]


def timed_check(judge: JudgeSession, solution: Solution) -> tuple[Any, float]:
    """The entry of a solution, and the seconds that its check took without compilation."""
    before, begin = judge.spent_s(), time.monotonic()
    (entry,) = judge.check([solution])
    first = "trials: first calls"
    return entry, time.monotonic() - begin - judge.spent_s().get(first, 0.0) + before.get(first, 0.0)


@pytest.mark.parametrize("key", ["L1_36", "L2_84", "L3_43"])
def test_further_solutions_of_a_session_take_seconds(key, tmp_path):
    """Ten different sources, a crash and a hang among them; verdicts are those of a cold judge."""
    problem = catalogue.load(key)
    fixture = fixture_of(problem)
    checks, boths, found = [], [], []
    with JudgeSession(problem, fixture, OPTIONS) as judge:
        for number in range(SOLUTIONS):
            if number == SOLUTIONS // 2:
                faults = {"crash": ("error", ["segfault"]), "hang": ("timeout", ["timeout"])}
                for name, expected in faults.items():
                    (fault,) = judge.check([broken(tmp_path, problem, name)])
                    assert (fault.verdict, outcome(fault)[2]) == expected, fault.reasons
            solution = oracle(tmp_path, problem, number)
            entry, check_s = timed_check(judge, solution)
            found.append(entry)
            begin = time.monotonic()
            (timed,) = judge.time([solution[0]], "quick").results
            assert timed.verdict == "correct" and timed.time_ms.n > 0, timed.reasons
            checks.append(check_s)
            boths.append(check_s + time.monotonic() - begin)
    cold = session.evaluate(problem, fixture, [oracle(tmp_path, problem, 0)], OPTIONS.but(timing=False)).results[0]
    assert list(map(outcome, found)) == [outcome(cold)] * SOLUTIONS
    assert cold.verdict == "correct"
    assert statistics.median(checks) <= CHECK_S and statistics.median(boths) <= CHECK_AND_TIME_S, (checks, boths)


def used_bytes() -> int:
    """Memory in use on this GPU by all processes; the least of a second, since ended processes free theirs late."""
    seen = handle(str(torch.cuda.get_device_properties(0).uuid))
    assert seen is not None, "NVML does not answer"
    found = []
    for _ in range(5):
        found.append(int(pynvml.nvmlDeviceGetMemoryInfo(seen).used))
        time.sleep(0.2)
    return min(found)


def test_gpu_memory_does_not_grow_over_many_solutions(tmp_path):
    """At smoke size: right ones and crashes in turn. Memory is compared when the tenth and the last have ended."""
    problem = catalogue.load("L1_36", size="smoke")
    used = []
    with JudgeSession(problem, fixture_of(problem), OPTIONS) as judge:
        for number in range(1, MANY + 1):
            crashes = number % 5 == 0
            solution = broken(tmp_path, problem, "crash") if crashes else oracle(tmp_path, problem, number)
            (entry,) = judge.check([solution])
            assert entry.verdict == ("error" if crashes else "correct"), entry.reasons
            if number in (10, MANY):
                used.append(used_bytes())
    assert used[1] - used[0] < SAME_BYTES
