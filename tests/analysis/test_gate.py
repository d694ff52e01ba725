"""The gate: how a solution compares with an old one that was timed in turns with it, from samples as the judge keeps
them, and the command around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import CPU
from conftest import series as samples
from test_report import bundle_of, result

from repro import config
from repro.analysis import gate
from repro.bundle.write import Bundle
from repro.judge import session
from repro.judge.timing import speedups
from repro.records.options import Options
from repro.records.result import JudgeResult
from repro.records.verdict import Summary, Verdict
from repro.report import against

Random = np.random.Generator
TIMES = {"eager": 40.0, "old": 10.0}


def drawn(random: Random, ms: float, drift: np.ndarray[Any, Any], scatter: float = 0.0005) -> list[float]:
    """Times of one process, as blocks on a GPU give them: an offset of its own that no block averages out (`scatter`,
    and 0.35 us), the drift that all processes of a block share, and noise of 0.4 %."""
    offset = random.normal(0, scatter) + random.normal(0, 0.00035 / ms)
    return list(map(float, ms * np.exp(offset + drift + random.normal(0, 0.004, len(drift)))))


def judged(random: Random, old_ms: float, slower: float = 0.0, scatter: float = 0.0005) -> JudgeResult:
    """What a job returns of an old and a new solution, the new one slower by a share."""
    drift = np.cumsum(random.normal(0, 0.001, 60))
    eager, control = (drawn(random, 2 * old_ms, drift) for _ in range(2))
    old, new = (drawn(random, ms, drift, scatter) for ms in (old_ms, old_ms * (1 + slower)))
    aa = speedups.gated(samples(eager), samples(control))
    found = result("L1_36", TIMES | {"new": 10.0}, aa=aa)
    found["samples_ms"] |= {"old": samples(old).record().to_json(), "new": samples(new).record().to_json()}
    return JudgeResult.model_validate(found)


def words(ms: float, count: int, slower: float = 0.0) -> list[str | None]:
    """The gate's words on pairs of kernels."""
    random = np.random.default_rng(7)
    results = [judged(random, ms, slower) for _ in range(count)]
    return [gate._against(of, *of.results).word for of in results]


@pytest.mark.parametrize("ms", [0.012, 0.2, 3.0])
def test_the_same_kernel_is_never_faster_or_slower(ms):
    assert not {"FASTER", "SLOWER"} & {*words(ms, 60)}


@pytest.mark.parametrize("ms", [0.3, 3.0])
def test_a_kernel_that_is_two_percent_slower_is_called_slower(ms):
    assert words(ms, 30, slower=0.02).count("SLOWER") >= 28
    assert {*words(ms, 20, slower=-0.03)} == {"FASTER"}


class Simulated:
    """A session whose loads scatter. steps: the first solution of each load, and "" where workers ended."""

    options, candidates = Options(reloads=True), {}

    def __init__(self, slower: float, scatter: float) -> None:
        self.random, self.slower, self.scatter = np.random.default_rng(7), slower, scatter
        self.steps = []
        self.evaluation = Mock()
        self.evaluation.workers.end = lambda *_: self.steps.append("")

    def time(self, names: list[str]) -> JudgeResult:
        self.steps.append(names[0])
        return judged(self.random, 3.0, self.slower, self.scatter)


@pytest.mark.parametrize(
    ("scatter", "slower", "due"),
    [
        (0.0005, 0.0, {"SAME"}),
        (0.001, 0.02, {"SLOWER"}),  # loads agree within 0.2 %
        (0.0005, -0.03, {"FASTER"}),
        (0.005, 0.0, {"SAME", "AMBIGUOUS"}),
        (0.014, 0.0, {"SAME", "AMBIGUOUS"}),  # of one side: the ratio's deviation is 2 %
    ],
)
def test_a_word_holds_across_loads(scatter, slower, due):
    simulated = Simulated(slower, scatter)
    results = [session.over_loads(simulated, ["old", "new"]) for _ in range(20)]
    assert {gate._against(of, *of.results).word for of in results} <= due


@pytest.mark.parametrize(("slower", "steps"), [(0.0, "old"), (0.05, "old  new  old  new  old")])
def test_solutions_are_loaded_anew_unless_the_first_load_shows_them_the_same(slower, steps):
    simulated = Simulated(slower, 0.0005)
    found = session.over_loads(simulated, ["old", "new"])
    assert " ".join(simulated.steps) == steps and len(found.loads) == simulated.steps.count("")


def test_the_interval_covers_how_loads_differ():
    """Where loads agree it is no narrower than that of one load."""
    random = np.random.default_rng(7)
    for scatter in (0.0, 0.01):
        one, *more = (judged(random, 3.0, 0.03, scatter) for _ in range(5))
        alone, across = (gate._against(of, *of.results).ci95 for of in (one, one.model_copy(update={"loads": more})))
        assert alone and across
        widths = [math.log(high / low) for low, high in (alone, across)]
        assert 0.9 < widths[1] / widths[0] < 2 if not scatter else widths[1] > 3 * widths[0]


def recorded() -> Iterator[JudgeResult]:
    """Every published row, with eager as the old solution, and eager in another process as the new one."""
    for manifest in sorted((config.ARTIFACTS_DIR / "results").glob("*/*-[rb]*/manifest.json")):
        for row in Bundle.open(manifest.parent).records().values():
            of = row.judged
            if of and of.timing.aa and "eager" in of.samples_ms:
                of.samples_ms["old"] = of.samples_ms["eager"]
                of.samples_ms["new"] = next(of.samples_ms[name] for name in of.samples_ms if "again" in name)
                yield of.model_copy(update={"results": RIGHT})


RIGHT = [
    Verdict(problem="L1_36", solution=name, verdict="correct", reasons=[], measurement=True,
            time_ms=Summary(median=1.0, ci95=[1.0, 1.0], iqr=0.0, n=9))
    for name in ("old", "new")
]  # fmt: skip


def test_recorded_pairs_of_one_kernel_are_the_same_and_two_percent_more_is_slower():
    """Of one row, L3_20 on one H200, two processes of eager are 2 % apart: its A/A control shows that much noise."""
    found = list(recorded())
    assert len(found) > 40 and {gate._against(of, *RIGHT).word for of in found} == {"SAME"}
    for of in found:
        new = of.samples_ms["new"].gated
        new.device_ms[:] = [1.02 * ms for ms in new.device_ms]
    assert {gate._against(of, *RIGHT).word for of in found} == {"SLOWER"}


def test_launches_that_the_host_delays_widen_the_interval():
    random = np.random.default_rng(7)
    of = judged(random, 1.0)
    hidden = gate._against(of, *of.results)
    of.timing.launches_not_hidden.extend(["old", "new"])
    visible = gate._against(of, *of.results)
    assert visible.ci95 and hidden.ci95 and math.log(visible.ci95[1] / hidden.ci95[1]) > 0


def bundle(folder: Path, new_ms: float = 10.0, **more: Any) -> Bundle:
    """A bundle of `evaluate --against` with one problem."""
    script = {"L1_36/against old": result("L1_36", TIMES | {"new": new_ms}, **more)}
    return bundle_of(folder, "evaluate", script, {"L1_36/against old": {"problem": "L1_36"}},
                     device=more.get("device", "cuda"), parameters={"against": "old.py"})  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "word", "fails"), [(9.7, "FASTER", False), (10.0, "SAME", False), (10.3, "SLOWER", True)]
)
def test_a_slower_kernel_fails_unless_that_is_allowed(ms, word, fails, tmp_path):
    old, new = gate.judged(bundle(tmp_path, ms).records().values())
    assert old.against is None and new.against and new.against.word == word
    assert gate.slower(new, 0.01) == fails and not gate.slower(new, 0.05)
    low, high = new.against.ci95 or (0, 0)
    assert against.sentence(new) == f"new is {10 / ms:.3f}x as fast as old [{low:.3f}, {high:.3f}]: {word}"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"bad": {"new": "0.4 over the limit 0.02 of class bf16"}},
         "new: wrong: relative L2 error 0.4 over the limit 0.02 of class bf16 on the published inputs"),
        ({"device": "cpu"}, "new is correct; speed not compared with old: times need a GPU"),
    ],
)  # fmt: skip
def test_what_was_not_compared_says_why(more, told, tmp_path):
    times = TIMES | ({} if "bad" in more else {"new": 10.0})
    script = {"r": result("L1_36", times, **more)}
    made = bundle_of(tmp_path, "evaluate", script, {"r": {"problem": "L1_36"}}, device=more.get("device", "cuda"),
                     parameters={"against": "old.py"})  # fmt: skip
    (_, new) = gate.judged(made.records().values())
    assert against.sentence(new) == told and not gate.slower(new, 0.0)


def test_a_report_of_it_leads_with_its_sentence(tool):
    done = tool.within("report", "-q", bundle(tool.folder, 10.5).path)
    assert "new is 0.952x as fast as old" in done.out and "SLOWER" in done.out


KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(x.square().mean(1, keepdim=True) + self.eps)
"""


def test_the_command_judges_both_and_times_need_a_gpu(judge_tool):
    """Two files of one name, and one that is wrong: exit 3, and a table for a pull request alone on stdout."""
    for name, text in {"a/k": KERNEL, "b/k": KERNEL, "b/bad": KERNEL.replace("self.eps)", "0.5)")}.items():
        (judge_tool.folder / name).parent.mkdir(exist_ok=True)
        (judge_tool.folder / f"{name}.py").write_text(text)
    words = ("evaluate", "b/k.py", "b/bad.py", "--against", "a/k.py", "--problem", "L1_36", *CPU)
    done = judge_tool.within(
        *words, "--no-compile", "--budget", "timing_s=0.2", "--format", "markdown", "--json", "out.json"
    )
    assert done.code == 3, done.err
    head, _, *lines = done.out.splitlines()
    assert head.startswith("| problem") and [line.split("|")[2].strip() for line in lines] == ["a/k", "b/k", "b/bad"]
    found = list(map(Verdict.model_validate, judge_tool.json()["results"]))
    assert [one.against and one.against.why for one in found] == [None, gate.NEEDS_GPU, "b/bad is wrong"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("k.py --against k.py --trust dev", "--against needs --trust audited"),
        ("--suite agent --against k.py", "--against and --shapes are for solutions"),
        ("k.py --against k.py --allow much", "--allow"),
        ("k.py --against nowhere.py --no-timing", "no such file or folder: nowhere.py"),
        ("k.ipynb --no-timing", "k.ipynb is a notebook"),
    ],
)
def test_wrong_use_is_refused(words, told, tool):
    for name in ("k.py", "k.ipynb"):
        (tool.folder / name).write_text(KERNEL)
    more = () if "--suite" in words else ("--problem", "L1_36")
    done = tool.within("evaluate", *words.split(), *more, *CPU)
    assert done.code == 1 and told in done.complaint
