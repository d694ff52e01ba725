"""A session of the judge at smoke size on the CPU: solutions come one after another, and none disturbs the next."""

from __future__ import annotations

import gc
import math
import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import WHOLE, smoke_problem

from repro.errors import JudgeError, UsageError
from repro.judge import session
from repro.judge.correctness import input_cases
from repro.judge.correctness.comparison import Comparison
from repro.judge.correctness.expected import Expected
from repro.judge.correctness.tolerances import Missed, by_rounding
from repro.judge.correctness.trials import Trials
from repro.judge.implementation import Options
from repro.judge.processes import launcher as launch
from repro.judge.session import JudgeSession

OPTIONS = Options(device="cpu", timeout_s=5, timing_budget_s=0.3, max_blocks=12, modes=("eager",))
PROBLEM = smoke_problem()
HONEST = "return super().forward(*inputs)"
# name -> (forward, text above the class)
STREAM = {
    "correct": (HONEST, ""),
    "wrong": ("return torch.zeros_like(inputs[0])", ""),
    "crashes at import": (HONEST, "import os\nos._exit(3)"),
    "crashes in a call": ("import ctypes\n        ctypes.string_at(0)", ""),
    "hangs": ("time.sleep(600)", "import time"),
    "banned": ("sys._getframe()\n        " + HONEST, "import sys"),
    "correct again": (HONEST, ""),
}


def solution(folder: Path, name: str, body: str = HONEST, top: str = "") -> session.Solution:
    """A solution in a file of its own: the problem's Model with this forward. top: text above the class."""
    file = folder / f"{name.replace(' ', '_')}.py"
    header = "\n\nclass ModelNew(Model):\n    calls = 0\n\n    def forward(self, *inputs):\n        "
    file.write_text(f"{PROBLEM.path.read_text()}\n{top}{header}{body}\n# {name}\n")
    return name, file, "ModelNew"


def outcome(entry) -> tuple[str, str, str | None]:
    """Verdict, code of the first reason, and precision class."""
    return entry.verdict, entry.reasons[0].code if entry.reasons else "", entry.precision_class


def workers() -> int:
    """How many workers run now."""
    return len(launch.current().workers())


@pytest.fixture
def judge(smoke_fixture):
    """An open session of L1_36."""
    with JudgeSession(PROBLEM, smoke_fixture("L1_36"), OPTIONS) as opened:
        yield opened
    assert workers() == 0


@pytest.mark.slow
def test_streamed_solutions_get_the_verdicts_of_a_cold_judge(judge, tmp_path, smoke_fixture):
    """A wrong solution, a crash and a hang each cost themselves alone; those that are correct are timed in between.
    Every check has seeds of its own."""
    found, seeds = {}, []
    for name, (body, top) in STREAM.items():
        (found[name],) = judge.check([solution(tmp_path, name, body, top)])
        seeds += [trial.seed for trial in judge.planned]
        assert found[name].time_ms is None and workers() <= 2, "the solution's, and the baselines'"
        if found[name].verdict == "correct":
            (timed,) = judge.time([name], "quick").results
            assert timed.time_ms.n > 0 and timed.speedup["eager"].ratio > 0
    assert len(set(seeds)) == len(seeds)
    cold_options = OPTIONS.but(timing=False)
    solutions = [solution(tmp_path, name, body, top) for name, (body, top) in STREAM.items()]
    cold = session.evaluate(PROBLEM, smoke_fixture("L1_36"), solutions, cold_options).results
    assert {name: outcome(entry) for name, entry in found.items()} == {e.solution: outcome(e) for e in cold}
    assert [outcome(entry)[:2] for entry in found.values()] == [
        ("correct", ""),
        ("incorrect", "rel_l2"),
        ("error", "worker_exited"),
        ("error", "segfault"),
        ("timeout", "timeout"),
        ("rejected", "banned"),
        ("correct", ""),
    ]
    assert [entry.model_fields_set for entry in found.values()] == [entry.model_fields_set for entry in cold]


@pytest.mark.slow
def test_baselines_are_classed_once_and_timed_beside_every_solution(judge, tmp_path, monkeypatch):
    classed, class_of_call = [], Comparison.class_of_call

    def counted(self, implementation, variant, *rest):
        classed.append(variant)
        return class_of_call(self, implementation, variant, *rest)

    monkeypatch.setattr(Comparison, "class_of_call", counted)
    results = []
    for name in ("first", "second"):
        judge.check([solution(tmp_path, name)])
        results.append(judge.time([name], "full"))
    assert sorted(classed) == ["eager", "eager_fp32"]
    for result in results:
        assert result.timing.baseline_classes == {"eager": "fp32", "eager_fp32": "fp32"}
        assert set(result.baselines) == {"eager", "eager_fp32"}
    times = [result.samples_ms["eager"].gated.device_ms for result in results]
    assert times[0] and times[1] and times[0] != times[1], "measured anew"


PART = "return inputs[0] / (inputs[0][:, :32].square().mean(1, keepdim=True) + self.eps).sqrt()"
FLAT = "return super().forward(torch.as_strided(inputs[0], inputs[0].shape, torch.empty(inputs[0].shape).stride()))"


@pytest.mark.parametrize(("klass", "strict"), [("fp16", False), ("bf16", True)])
def test_problems_in_16_bits_and_inputs_that_are_not_contiguous(klass, strict, tmp_path, smoke_fixture):
    key = f"L1_36@{klass}"
    bodies = {"right": HONEST, "of a part": PART, "flat": FLAT}
    with JudgeSession(smoke_problem(key), smoke_fixture(key), OPTIONS.but(checks=["strides"] * strict)) as judge:
        right, part, flat = judge.check(solution(tmp_path, name, body) for name, body in bodies.items())
    assert outcome(right) == ("correct", "", klass) and "needs_contiguous" not in right.labels
    assert part.verdict == "incorrect"
    assert outcome(flat) == (("incorrect", "needs_contiguous", None) if strict else ("correct", "", klass))
    assert ("needs_contiguous" in flat.labels) is not strict


TF32 = """
def cut(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = cut(x) @ cut(self.linear.weight).t() + self.linear.bias
        return torch.softmax(nn.functional.gelu(y), dim=1)
"""
CLAMPED = TF32.replace("cut(x) @ cut(self.linear.weight)", "x @ self.linear.weight").replace(
    "gelu(y)", "gelu(y).clamp(max=9000.0)"
)
# Seeds of inputs far from zero whose two largest sums are closer to each other than TF32 rounds.
CLOSE = (117, 254)


def test_a_draw_whose_result_rounding_decides_is_drawn_again(tmp_path, smoke_fixture, monkeypatch):
    """A right solution keeps its class, and one that rounding does not explain is wrong."""
    problem, make = smoke_problem("L2_99"), input_cases.make

    def planned(*args: Any, **kwargs: Any) -> list[input_cases.Trial]:
        trials, close = make(*args, **kwargs), iter(CLOSE)
        return [
            replace(trial, seed=next(close), stress="shift -36000") if trial.kind == "offset" else trial
            for trial in trials
        ]

    def fails(*_: Any) -> dict[str, float]:
        raise JudgeError("Model fails at tf32", "all elements of input should be between 0 and 1")

    files = {}
    for name, text in (("right", TF32), ("wrong", CLAMPED)):
        files[name] = tmp_path / f"{name}.py"
        files[name].write_text(f"{problem.path.read_text()}\n{text}")
    with JudgeSession(problem, smoke_fixture("L2_99"), OPTIONS) as judge:
        monkeypatch.setattr(input_cases, "make", planned)
        monkeypatch.setattr(input_cases, "secret_seed", count(1000).__next__)  # none of which rounding decides
        right, wrong = judge.check((name, file, "ModelNew") for name, file in files.items())
        monkeypatch.setattr(Expected, "honest", fails)
        (unknown,) = judge.check([("unknown", files["right"], "ModelNew")])
    assert unknown.verdict == "incorrect" and not unknown.findings, "the Model takes no inputs that are off"
    assert outcome(right) == ("correct", "", "tf32")
    assert [finding.code for finding in right.findings] == ["drawn_again"] * len(CLOSE)
    assert wrong.verdict == "incorrect" and {reason.trial for reason in wrong.reasons} == {"offset"}


@pytest.mark.parametrize(
    ("values", "honest", "due"),
    [
        ((2e-3, 0.1), (0.3, 0.0), True),
        ((2e-3, 0.1), (1.5e-3, 0.0), True),
        ((2e-3, 0.1), (6e-4, 0.0), False),
        ((0.9, 0.1), (2e-3, 0.0), False),
        ((math.nan, 0.1), (0.3, 0.0), False),
        ((2e-3, 1.0), (0.3, 0.0), False),
        ((5e-4, 0.1), (0.3, 0.0), False),
    ],
    ids=["a jump", "about as far", "within limits", "further", "not a number", "stale", "within its limits"],
)
def test_rounding_explains_no_more_than_it_does_to_the_model(values, honest, due):
    norm, edit = "rel_l2", "edit"
    missed = Missed("tf32", "edited", 0, {norm: 1e-3, edit: 0.5}, dict(zip((norm, edit), values, strict=True)))
    assert by_rounding(missed, dict(zip((norm, edit), honest, strict=True))) is due


def test_a_quick_timing_compiles_nothing(tmp_path, smoke_fixture):
    options = OPTIONS.but(modes=("eager", "compile"))
    with JudgeSession(PROBLEM, smoke_fixture("L1_36"), options) as judge:
        judge.check([solution(tmp_path, "mine")])
        assert set(judge.time(["mine"], "quick").baselines) == {"eager", "eager_fp32"}


def test_solutions_of_one_check_are_timed_beside_each_other(judge, tmp_path):
    wrong = solution(tmp_path, "wrong", *STREAM["wrong"])
    entries = judge.check([solution(tmp_path, "a"), wrong, solution(tmp_path, "b")])
    assert [entry.verdict for entry in entries] == ["correct", "incorrect", "correct"]
    result = judge.time(["a", "wrong", "b"], "quick")
    assert {"a", "b"} < set(result.samples_ms) and "wrong" not in result.samples_ms
    assert [bool(entry.time_ms) for entry in result.results] == [True, False, True]


def test_an_earlier_solution_can_be_timed_beside_a_later_one(judge, tmp_path):
    """Its worker ended with the later check, and a new one starts."""
    judge.check([solution(tmp_path, "earlier")])
    judge.check([solution(tmp_path, "later")])
    result = judge.time(["earlier", "later"], "quick")
    assert all(entry.time_ms.n > 0 for entry in result.results)


def test_a_solution_that_turns_wrong_while_it_is_timed_loses_its_verdict_for_good(judge, tmp_path):
    """A check makes 72 calls, and the process that made them is timed."""
    lazy = (
        "y = super().forward(*inputs)\n        ModelNew.calls += 1\n        return y if ModelNew.calls < 74 else y * 0"
    )
    (entry,) = judge.check([solution(tmp_path, "lazy", lazy)])
    assert entry.verdict == "correct"
    for _ in range(2):
        (entry,) = judge.time(["lazy"], "quick").results
        assert outcome(entry)[:2] == ("incorrect", "timed_output_wrong") and entry.time_ms is None
    (entry,) = judge.check([solution(tmp_path, "lazy")])
    assert entry.verdict == "correct", "a new source of that name is a new solution"
    assert judge.time(["lazy"], "quick").results[0].time_ms


def test_only_checked_solutions_are_timed(judge, tmp_path):
    with pytest.raises(UsageError, match="mine has no verdict"):
        judge.time(["mine"], "quick")
    with pytest.raises(UsageError, match="two solutions have one name"):
        judge.check([solution(tmp_path, "mine"), solution(tmp_path, "mine")])
    (entry,) = judge.check([solution(tmp_path, "mine")])
    assert entry.verdict == "correct", "the session goes on"


def test_a_screening_is_one_call_and_no_verdict(judge, tmp_path):
    """One that is wrong on signed inputs alone passes the one trial, and the full check finds it."""
    positive = solution(tmp_path, "positive", "return super().forward(inputs[0].abs())")
    wrong = solution(tmp_path, "wrong", *STREAM["wrong"])
    crash = solution(tmp_path, "crash", *STREAM["crashes in a call"])
    gone = solution(tmp_path, "gone", *STREAM["crashes at import"])
    several = [positive, wrong, crash, gone, solution(tmp_path, "mine")]
    found = {e.solution: e for e in judge.check(several, "screen")}
    verdicts = {name: entry.verdict for name, entry in found.items()}
    right = {"positive": "correct", "mine": "correct"}
    assert verdicts == right | {"wrong": "incorrect", "crash": "error", "gone": "error"}
    assert list(map(len, found["mine"].distances.values())) == [1]
    assert found["mine"].bits == found["positive"].bits != found["wrong"].bits
    assert judge.time(["mine"], "screen").results[0].time_ms.n > 0
    with pytest.raises(UsageError, match="no verdict"):
        judge.time(["mine"], "full")
    assert judge.check([positive])[0].verdict == "incorrect"


def test_screened_solutions_may_share_workers_and_get_the_verdicts_of_their_own_sources(smoke_fixture, tmp_path):
    with JudgeSession(PROBLEM, smoke_fixture("L1_36"), OPTIONS.but(shared=True)) as judge:

        def screened(*solutions, tier="screen"):
            entries = {entry.solution: entry for entry in judge.check(solutions, tier)}
            running = [cast(Any, each.worker) for each in judge.evaluation.workers.solutions]
            return entries, [each.started.pid if each else 0 for each in running]

        mine, wrong = solution(tmp_path, "mine"), solution(tmp_path, "wrong", *STREAM["wrong"])
        first, (one, two) = screened(mine, solution(tmp_path, "other"))
        assert judge.time(["mine", "other"], "screen").results[0].time_ms.n > 0
        second, pids = screened(mine, wrong, solution(tmp_path, "third"))
        assert pids[:2] == [one, 0] and pids[2] not in (one, two), "what is wrong ends"
        assert {name: entry.verdict for name, entry in second.items()} == {
            "mine": "correct", "wrong": "incorrect", "third": "correct"}  # fmt: skip
        assert second["mine"].bits == second["third"].bits != first["mine"].bits, "other inputs"
        assert all(entry.time_ms.n > 0 for entry in judge.time(["mine", "third"], "screen").results)
        for _ in range(2):
            _, (last,) = screened(solution(tmp_path, "fourth"))
            assert last == one and judge.time(["fourth"], "screen").results[0].time_ms.n > 0
        third, last_two = screened(wrong, mine)
        assert last_two == [0, pids[2]], "a worker that no solution needs rests"
        assert [entry.verdict for entry in third.values()] == ["incorrect", "correct"]
        assert judge.time(["mine"], "screen").results[0].time_ms.n > 0
        screened(mine, solution(tmp_path, "other"))
        full, (new,) = screened(solution(tmp_path, "fourth"), tier="full")
        assert full["fourth"].verdict == "correct" and new not in (one, two, *pids), (
            "a verdict has a process of its own"
        )
        assert workers() == 1, "no worker of a screening is left"
        (timed,) = judge.time(["fourth"], "quick").results
        assert timed.time_ms.n > 0
    assert workers() == 0


def test_a_first_call_beside_others_decides_no_verdict(smoke_fixture, tmp_path):
    """Side by side memory may be short, so trials decide: each of a solution alone."""
    marker = tmp_path / "called"
    once = f"import os\nMARKER = {str(marker)!r}\ndef first():\n    if not os.path.exists(MARKER):\n        os._exit(3)"
    named = [solution(tmp_path, "short", f"first()\n        {HONEST}", once), solution(tmp_path, "mine")]
    with JudgeSession(PROBLEM, smoke_fixture("L1_36"), OPTIONS) as judge:
        evaluation = judge.evaluation
        evaluation.workers.solutions = running = [session._implementation(*each) for each in named]
        evaluation.workers.start(*running)
        before = [cast(Any, each.worker).started.pid for each in running]
        evaluation.trials.compile_all(running, decides=False)
        after = [cast(Any, each.worker).started.pid for each in running]
        assert before[0] != after[0] and before[1] == after[1] and not any(each.failed for each in running)
        marker.touch()
        evaluation.trials.verify(input_cases.make(evaluation.plan, fixture=judge.fixture), running)
        assert all(each.distances and not each.failed for each in running)
        marker.unlink()
        evaluation.trials.compile_all(running, decides=True)
        assert [each.failed for each in running] == ["error", ""]


@pytest.mark.slow
def test_a_full_verdict_is_kept_and_that_of_a_screening_is_not(judge, tmp_path, monkeypatch):
    tried, run = [], Trials.run

    def counted(self, solution, trial):
        tried.append(solution.name)
        run(self, solution, trial)

    monkeypatch.setattr(Trials, "run", counted)
    known, other, screened = (solution(tmp_path, name) for name in ("known", "other", "screened"))
    (full,) = judge.check([known])
    judge.check([known, screened], "screen")
    tried.clear()
    entries = judge.check([known, other, screened], keep=["known", "screened"])
    assert set(tried) == {"other", "screened"}
    assert [entry.verdict for entry in entries] == ["correct"] * 3
    assert entries[0].distances == full.distances and entries[0].labels == full.labels
    timed = judge.time(["known", "other"], "full").results
    assert all(entry.time_ms.n > 0 for entry in timed)
    assert judge.spent_s()["trials"] > 0 and any(name.startswith("timing: ") for name in judge.spent_s())


def test_a_fault_of_the_judge_leaves_no_worker_and_the_session_usable(judge, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise JudgeError("the judge is broken")

    with monkeypatch.context() as patch:
        patch.setattr(Trials, "verify", broken)
        with pytest.raises(JudgeError):
            judge.check([solution(tmp_path, "mine")])
    assert workers() == 0
    assert judge.check([solution(tmp_path, "mine")])[0].verdict == "correct"


def resident_bytes() -> int:
    """Memory of this process that lies in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def shared_files() -> int:
    """Anonymous shared files that this process maps or has open."""
    maps = sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return maps + len(os.listdir("/proc/self/fd")) + len(os.listdir("/dev/shm"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_of_the_judge_does_not_grow_with_solutions(judge, tmp_path):
    """Right and wrong ones, crashes, and every tenth one timed."""
    bodies = [HONEST, "return torch.zeros_like(inputs[0])", "import ctypes\n        ctypes.string_at(0)", HONEST]
    seen = []
    for number in range(60 if WHOLE else 16):
        name = f"solution {number}"
        (entry,) = judge.check([solution(tmp_path, name, bodies[number % len(bodies)])])
        if number % 10 == 0 and entry.verdict == "correct":
            judge.time([name], "quick")
        if number % 4 == 3 and number >= 9:  # after a first timing
            gc.collect()
            seen.append((resident_bytes(), shared_files(), workers()))
    growth = [now[0] - seen[0][0] for now in seen]
    assert growth[-1] < 20 << 20, growth
    assert {(files, running) for _, files, running in seen} == {seen[0][1:]}, seen
