"""Workers that start ahead: who gets one, what they have before, and that nobody leaves one behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from repro import settings
from repro.evaluation import JudgeOptions
from repro.judge import clock, spare
from repro.judge.buffers import SharedBuffer
from repro.judge.process import WorkerProcess

CPU = torch.device("cpu")


@pytest.fixture
def ready() -> Iterator[None]:
    """Two processes for workers of the CPU, which a cell on a CPU would not start ahead."""
    spare.prepare(2, "cpu")
    yield
    spare.close()


def alive(pid: int) -> bool:
    return clock.age_s(pid) > 0


def test_a_worker_takes_what_waits_and_is_confined_as_every_other(ready: None) -> None:
    waiting = spare._ready["cpu"][0].started.pid
    worker, late = WorkerProcess("a", CPU, {}, trusted=False), SharedBuffer(64, CPU)
    try:
        assert worker.started.pid == waiting and len(spare._ready["cpu"]) == 1
        hello = worker.start()
        assert hello["pid"] == waiting and hello["confined"]["no_new_privs"] == "applied"
        sharing = WorkerProcess("b", CPU, {"staging": late}, trusted=False)  # it inherits a descriptor: made anew
        assert len(spare._ready["cpu"]) == 1 and sharing.start()["confined"].keys() == hello["confined"].keys()
        sharing.close()
    finally:
        worker.close()
        late.close()
    assert not alive(waiting)


def test_what_nobody_took_ends_with_its_scratch_folder(ready: None) -> None:
    left = list(spare._ready["cpu"])
    assert spare.take("cuda") is None
    spare.close()
    spare.close()
    assert spare.take("cpu") is None
    for process in left:
        assert not alive(process.started.pid) and not Path(process.started.scratch).exists()


def test_workers_that_are_doomed_together_end_together(ready: None) -> None:
    workers = [WorkerProcess(name, CPU, {}, trusted=False) for name in ("a", "b")]
    for worker in workers:
        worker.start()
    workers[0].stop()  # one that is stopped dies as well
    for worker in workers:
        worker.doom()
    for worker in workers:
        worker.close()
        worker.close()
        worker.doom()
        assert not alive(worker.started.pid) and not worker.scratch.exists()


def test_as_many_start_ahead_as_an_evaluation_takes() -> None:
    full, quick = (JudgeOptions(quick=q).for_cell("cuda") for q in (False, True))
    assert spare.wanted("cuda", 2, full) == 2 + 3  # baselines, max_autotune, control
    assert spare.wanted("cuda", 2, quick) == 2 + 1
    assert spare.wanted("cuda", 1, JudgeOptions(timing=False).for_cell("cuda")) == 1
    assert spare.wanted("cuda", 2, JudgeOptions(trust="dev").for_cell("cuda")) == 0
    assert spare.wanted("cpu", 2, JudgeOptions().for_cell("cpu")) == 0


def test_what_the_judge_compiles_is_kept_where_nobody_else_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "unchanged")
    monkeypatch.setenv("REPRO_STATE", str(tmp_path / "state"))
    settings.keep_compiled()
    kept = tmp_path / "state" / f"judge-{os.geteuid()}"
    assert Path(os.environ["TRITON_CACHE_DIR"]).parent == kept and kept.stat().st_mode & 0o777 == 0o700

    def refused() -> bool:
        monkeypatch.setenv("TRITON_CACHE_DIR", "unchanged")
        settings.keep_compiled()
        return os.environ["TRITON_CACHE_DIR"] == "unchanged"

    assert not refused()
    kept.chmod(0o770)
    assert refused()
    kept.chmod(0o700)
    kept.parent.chmod(0o777)
    assert refused()
    kept.parent.chmod(0o755)
    kept.rmdir()
    kept.symlink_to(tmp_path)
    assert refused()


def test_a_cell_finds_the_state_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRO_STATE", raising=False)
    assert settings.cell_env({"TMPDIR": "/elsewhere"})["REPRO_STATE"] == str(settings.state_dir().resolve())


SHAPES = """
import sys
from repro import inputs, problems
from repro.judge.reference import output_spec

problem = problems.load("L1_36", size="smoke")
plan = inputs.plan(problem)
first = output_spec(plan, inputs.weights(problem, plan.module))
assert "torch._dynamo" not in sys.modules, "the stand-in is gone, and nothing imported the real one"
import torch
import torch._dynamo

assert output_spec(plan, inputs.weights(problem, plan.module)) == first
square = lambda x: torch.mean(x**2)
assert float(torch.compile(square, backend="eager")(torch.ones(3))) == 1.0
"""


def test_shapes_are_known_without_the_compiler_which_works_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True, timeout=120, check=False,
                          env=os.environ | {"PYTHONPATH": str(settings.ROOT)})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_laps_add_up() -> None:
    watch = clock.Clock()
    time.sleep(0.02)
    watch.lap("a")
    watch.lap()
    watch.lap("a")
    assert 0.02 <= watch.laps["a"] <= watch.total() + 0.002 and clock.age_s(os.getpid()) > 0
    assert clock.age_s(1 << 30) == 0


@pytest.mark.parametrize("quick", [False, True])
def test_what_a_quick_look_does_without_is_named(quick: bool) -> None:
    from repro.judge.contest import Contest
    from repro.judge.subject import Options

    told = JudgeOptions(quick=quick).for_cell("cuda")
    contest = object.__new__(Contest)
    contest.cuda = True
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
    contest.options = Options(**given)
    named = {"reduce_overhead", "max_autotune", "the A/A control", "times back to back (hot)", "the profile of kernels"}
    assert set(contest._skipped()) == (named if quick else set())
    assert contest.options.controlled is not quick
