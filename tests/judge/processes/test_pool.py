"""Workers that start ahead: which solution gets one, what they have before, and that none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from conftest import alive, until

from repro import config
from repro.errors import SolutionDied
from repro.judge import baselines
from repro.judge.gpu.shared_memory import SharedBuffer
from repro.judge.implementation import Implementation
from repro.judge.processes import pool
from repro.judge.processes.client import WorkerProcess
from repro.judge.timing import precompile
from repro.judge.timing.precompile import Ahead
from repro.problems import catalogue
from repro.records.options import Options
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies.agent import study
from repro.studies.agent.controls import EVERY
from repro.system.jsonio import Json

CPU = torch.device("cpu")


@pytest.fixture
def ready():
    """Two processes for workers of the CPU, which a job on a CPU would not start ahead."""
    pool.prepare(Counter({pool.PLAIN: 2}), "cpu")
    yield
    pool.close()


def test_a_worker_takes_what_waits_and_is_confined_as_every_other(ready):
    waiting = pool._ready["cpu", pool.PLAIN][0].started.pid
    worker, late = WorkerProcess("a", CPU, {}, trusted=False), SharedBuffer(64, CPU)
    try:
        assert worker.started.pid == waiting and len(pool._ready["cpu", pool.PLAIN]) == 1
        hello = worker.start()
        assert hello["pid"] == waiting and hello["confined"]["no_new_privs"] == "applied"
        sharing = WorkerProcess("b", CPU, {"staging": late}, trusted=False)  # it inherits a descriptor: made anew
        assert (
            len(pool._ready["cpu", pool.PLAIN]) == 1 and sharing.start()["confined"].keys() == hello["confined"].keys()
        )
        sharing.close()
    finally:
        worker.close()
        late.close()
    assert not alive(waiting)


def test_unused_processes_end_with_their_scratch_folders(ready):
    left = list(pool._ready["cpu", pool.PLAIN])
    assert pool.take("cuda") is None
    pool.close()
    pool.close()
    assert pool.take("cpu") is None
    for process in left:
        assert not alive(process.started.pid) and not Path(process.started.scratch).exists()


def test_workers_that_are_doomed_together_end_together(ready):
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


def test_as_many_start_ahead_as_an_evaluation_takes():
    full, quick = (chosen.on("cuda") for chosen in (Options(), Options().quick()))
    plain, compiles = pool.PLAIN, pool.COMPILES
    single, half = "float32", "bfloat16"
    assert pool.wanted("cuda", half, 2, full) == {plain: 2 + 1, compiles: 2}  # control; baselines and max_autotune
    assert pool.wanted("cuda", single, 2, full) == {plain: 2 + 1, compiles: 3}  # that at fp32 and at tf32
    assert pool.wanted("cuda", single, 2, quick) == {plain: 2, compiles: 1}
    assert pool.wanted("cuda", single, 2, Options(modes=("eager",)).on("cuda")) == {plain: 2 + 1 + 1}
    assert pool.wanted("cuda", single, 1, Options(timing=False).on("cuda")) == {plain: 1}
    assert pool.wanted("cuda", single, 2, Options(trust="dev").on("cuda")) == {}
    assert pool.wanted("cpu", single, 2, Options().on("cpu")) == {}
    for dtype in (single, half):
        workers = baselines.workers(dtype, full.modes)
        assert len(workers) == pool.wanted("cuda", dtype, 2, full)[compiles], workers


def test_no_more_wait_than_are_wanted_and_none_that_has_ended(ready):
    pool.prepare(Counter({pool.PLAIN: 2}), "cpu")
    first, second = pool._ready["cpu", pool.PLAIN]
    assert pool.take("cpu", pool.COMPILES) is None, "another kind"
    first.doom()
    until(lambda: first.launcher.poll(first.started.pid) is not None)
    assert pool.take("cpu") is second and pool.take("cpu") is None
    second.close()


def test_who_needs_one_that_is_about_to_start_waits_for_it():
    with ThreadPoolExecutor(1) as beside:
        beside.submit(pool.prepare, Counter({pool.PLAIN: 2}), "cpu")
        until(lambda: pool._ready or pool._due)
        taken = [pool.take("cpu"), pool.take("cpu")]
    assert all(taken) and pool.take("cpu") is None
    for process in taken:
        assert process is not None
        process.close()


# Compiles nothing, but has the processes for it; as the worker that it is it says how many live below it.
POOLED = """
import os, sys
from pathlib import Path
import torch
from torch._inductor.async_compile import AsyncCompile
from repro.system.procfs import descendants
from repro.judge.worker.server import Worker

def living():
    return len(descendants(os.getpid())) - 1

worker, found = Worker(torch.device("cpu"), Path(sys.argv[1])), []
for _ in range(2):
    AsyncCompile.process_pool().submit(os.getpid).result(60)
    found.append(living())
    assert worker.prepare() == {}
    found.append(living())
print(*found)
"""


@pytest.mark.slow
def test_timed_workers_have_no_compilation_processes(tmp_path):
    """One for each core would be stopped and resumed with it at every call; what compiles later has them again."""
    environment = config.worker_env(tmp_path, interpret=False) | {"TORCHINDUCTOR_COMPILE_THREADS": "3"}
    command = [sys.executable, "-c", POOLED, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["4", "1", "4", "1"], done.stderr[-2000:]


def test_for_a_negative_control_nothing_compiles(tmp_path, monkeypatch):
    chosen = {}
    monkeypatch.setattr(study.evaluation, "job", lambda run, row, *_, **__: chosen.update({row: run.options}))
    arms, engine = [*study.shipped("oracle", 1), EVERY["nop"]], cast(Any, SimpleNamespace(device="cuda"))
    study.plan(Run(engine, tmp_path, Progress(), size="smoke"), [catalogue.load("L1_36", size="smoke")], arms)
    assert chosen == {"L1_36/oracle/0": Options(), "L1_36/nop/0": Options(modes=("eager",))}


def test_waiting_processes_are_stopped_during_timing(ready):
    """A worker that is taken meanwhile runs, the others do when the time is up."""

    def state(process):
        return Path(f"/proc/{process.started.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def becomes(process, stopped):
        return until(lambda: (state(process) in "Tt") is stopped)

    first, second = pool._ready["cpu", pool.PLAIN]
    with pool.paused():
        assert becomes(first, True) and becomes(second, True)
        assert pool.take("cpu") is first and becomes(first, False)
        assert becomes(second, True)
    assert becomes(second, False)
    first.close()


class Compiler:
    """A baseline's worker: notes what it compiles, fails at some, and may take until it is killed."""

    def __init__(self, slow: tuple[str, ...] = (), bad: tuple[str, ...] = ()):
        self.dead, self.slow, self.bad, self.ran = threading.Event(), slow, bad, []

    def ask(self, message: Json, timeout_s: float) -> Json:
        if message["op"] == "run":
            self.ran.append(message["variant"])
            if message["variant"] in self.slow and self.dead.wait(20):
                raise SolutionDied("killed", "during run")
            if message["variant"] in self.bad:
                raise SolutionDied("segfault", "ptxas")
        return {}

    def doom(self):
        self.dead.set()

    def until(self, ran: list[str]):
        """Waits until it has begun with these."""
        until(lambda: self.ran == ran)


MODES = ("eager", "compile", "reduce_overhead", "max_autotune")


def judged(
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    start: Callable[[Implementation], None] = lambda _: None,
    timeout_s: float = 30.0,
    **workers: Compiler,
) -> tuple[Any, list[Ahead], list[str]]:
    """An evaluation of one solution, the baselines that compile meanwhile, and the workers that were ended."""
    ended = []
    evaluation = SimpleNamespace(
        slots=SimpleNamespace(described=list, fill=lambda *_: None),
        workers=SimpleNamespace(
            seat=lambda s: None, start=start, rebind=lambda _: None, load=lambda *_: None,
            release=lambda _: None,
            end=lambda *s: ended.extend(x.name for x in s), solutions=[Implementation("s", None, "M", ["s"])],
        ),
        expected=SimpleNamespace(weights=lambda _: ("native", None)),
        problem=SimpleNamespace(dtype=dtype, native_signal=True), fixture={},
        options=SimpleNamespace(modes=MODES, compile_timeout_s=timeout_s),
    )  # fmt: skip
    monkeypatch.setattr(precompile, "class_of", lambda distances, _: distances["class"])
    monkeypatch.setattr(precompile, "room", lambda *_, **__: True)
    implementations = [
        Implementation(name, None, "Model", [], worker=cast(Any, worker)) for name, worker in workers.items()
    ]
    started = []
    precompile.begin(cast(Any, evaluation), implementations, started)
    return evaluation, started, ended


def test_only_needed_baselines_compile_during_verification(monkeypatch):
    """The slow search begins when two draws show the class, and only for that one."""
    plain, exact, rough = Compiler(), Compiler(), Compiler()
    evaluation, started, ended = judged(
        "float32", monkeypatch, baseline=plain, max_autotune_fp32=exact, max_autotune_tf32=rough
    )
    plain.until(["compile"])
    for known in ({}, {"class": ["tf32"]}):
        evaluation.workers.solutions[0].distances = known
        precompile.foresee(evaluation, started)
    assert not any("tf32" in each.asked for each in started), "the class is not known yet"
    evaluation.workers.solutions[0].distances = {"class": "fp32"}
    for _ in range(3):  # every trial says so
        precompile.foresee(evaluation, started)
    for each in started:
        each.wait(time.monotonic())
    assert plain.ran == ["compile", "compile_fp32", "reduce_overhead_fp32"] and exact.ran == ["max_autotune_fp32"]
    assert rough.ran == [] and not ended


def test_a_dropped_baseline_leaves_no_fault_behind(monkeypatch):
    """A later solution may need it: it compiles when it is timed then."""
    tuner = Compiler(slow=("max_autotune_tf32",))
    evaluation, (each,), ended = judged("float32", monkeypatch, max_autotune_tf32=tuner)
    evaluation.workers.solutions[0].distances = {"class": "tf32"}
    precompile.foresee(evaluation, [each])
    tuner.until(["max_autotune_tf32"])
    each.drop()
    assert each.why == {} and not each.implementation.failed and not each.implementation.reasons
    assert ended == ["max_autotune_tf32"]


def test_max_autotune_has_its_time_from_when_the_solutions_were_verified(monkeypatch):
    """A slow solution takes none of it away; then it ends, and its reason says so."""
    tuner = Compiler(slow=("max_autotune_tf32",))
    evaluation, (each,), ended = judged("float32", monkeypatch, timeout_s=1.0, max_autotune_tf32=tuner)
    evaluation.workers.solutions[0].distances = {"class": "tf32"}
    precompile.foresee(evaluation, [each])
    tuner.until(["max_autotune_tf32"])
    time.sleep(1.5)
    begin = time.monotonic()
    each.wait(begin)
    assert 1 <= time.monotonic() - begin < 5 and tuner.dead.is_set() and ended == ["max_autotune_tf32"]
    assert each.why == {"max_autotune_tf32": "timeout: compilation took longer than 1 s"}


def test_finished_and_waiting_compilations_have_no_time_limit(monkeypatch):
    """However long ago its time was up: its thread may only be slow to end, or its worker to start."""
    begun = threading.Event()
    slow = Compiler()
    _, (each,), _ = judged("bfloat16", monkeypatch, timeout_s=0.1, start=lambda _: begun.wait(20), max_autotune=slow)
    threading.Timer(1.0, begun.set).start()
    each.wait(time.monotonic() - 100)
    assert not slow.dead.is_set() and slow.ran == ["max_autotune"] and each.why == {}


def test_a_third_worker_waits_where_there_is_room_for_two(monkeypatch):
    exact = Compiler()
    evaluation, (each,), _ = judged("float32", monkeypatch, max_autotune_fp32=exact)
    monkeypatch.setattr(precompile, "room", lambda *_, **__: False)
    evaluation.workers.solutions[0].distances = {"class": "fp32"}
    precompile.foresee(evaluation, [each])
    each.wait(time.monotonic())
    assert exact.ran == [] and not each.asked and each.why == {}


def test_only_what_the_correct_solutions_are_compared_with_is_waited_for(monkeypatch):
    """One that fails its last trial leaves a search that is not needed; so does a job without any correct one."""
    evaluation, _, _ = judged("float32", monkeypatch)
    exact, rough = (Implementation(k, None, "M", [k], distances=cast(Any, {"class": k})) for k in ("fp32", "tf32"))
    assert precompile.wanted(evaluation, [exact]) == {"baseline", "max_autotune_fp32"}
    assert precompile.wanted(evaluation, [exact, rough]) == {"baseline", "max_autotune_fp32", "max_autotune_tf32"}
    assert precompile.wanted(evaluation, []) == set()


def test_a_worker_that_finds_no_room_is_left_to_the_timing(monkeypatch):
    """And the solution whose trial it would have begun beside is not blamed."""
    evaluation, started, ended = judged("float32", monkeypatch, max_autotune_tf32=Compiler())

    def full(implementation):
        raise torch.cuda.OutOfMemoryError("no room for its buffer")

    evaluation.workers.seat = full
    evaluation.workers.solutions[0].distances = {"class": "tf32"}
    precompile.foresee(evaluation, started)
    (each,) = started
    each.wait(time.monotonic())
    assert ended == ["max_autotune_tf32"] and each.why == {}


def test_a_problem_of_one_precision_waits_for_no_class(monkeypatch):
    plain, tuner = Compiler(), Compiler()
    _, started, _ = judged("bfloat16", monkeypatch, baseline=plain, max_autotune=tuner)
    for each in started:
        each.wait(time.monotonic())
    assert plain.ran == ["compile", "reduce_overhead"] and tuner.ran == ["max_autotune"]


def test_a_baseline_that_fails_is_left_out_alone(monkeypatch):
    """Its worker ends; what comes after it is compiled when it is timed, in a new one."""
    plain = Compiler(bad=("compile_fp32",))
    evaluation, (each,), ended = judged("float32", monkeypatch, baseline=plain)
    evaluation.workers.solutions[0].distances = {"class": "fp32"}
    precompile.foresee(evaluation, [each])
    each.wait(time.monotonic())
    assert plain.ran == ["compile", "compile_fp32"] and ended == ["baseline"]
    assert list(each.why) == ["compile_fp32"] and "ptxas" in each.why["compile_fp32"]


def test_unneeded_baselines_are_not_waited_for(monkeypatch):
    """Where no solution is correct its compilation ends at once, and so does its worker."""
    tuner = Compiler(slow=("max_autotune",))
    _, (each,), ended = judged("bfloat16", monkeypatch, max_autotune=tuner)
    each.drop()
    assert tuner.dead.is_set() and not each._busy(0.0) and ended == ["max_autotune"]


def test_a_job_finds_the_state_of_the_machine(monkeypatch):
    monkeypatch.delenv("REPRO_STATE", raising=False)
    assert config.job_env({"TMPDIR": "/elsewhere"})["REPRO_STATE"] == str(config.state_dir().resolve())


SHAPES = """
import sys
from repro.problems import catalogue, plan
from repro.problems.meta import output_spec

problem = catalogue.load("L1_36", size="smoke")
planned = plan.plan(problem)
first = output_spec(planned, plan.weights(problem, planned.module))
assert "torch._dynamo" not in sys.modules, "the stand-in is gone, and nothing imported the real one"
import torch
import torch._dynamo

assert output_spec(planned, plan.weights(problem, planned.module)) == first
square = lambda x: torch.mean(x**2)
assert float(torch.compile(square, backend="eager")(torch.ones(3))) == 1.0
"""


@pytest.mark.slow
def test_shapes_are_known_without_the_compiler_which_works_afterwards():
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True, timeout=120, check=False,
                          env=os.environ | {"PYTHONPATH": str(config.ROOT)})  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("quick", [False, True])
def test_passes_left_out_of_a_quick_look_are_named(quick):
    from repro.judge.timing.experiment import Experiment

    experiment = object.__new__(Experiment)
    experiment.cuda = True
    experiment.options = Options().quick() if quick else Options()
    named = {"reduce_overhead", "max_autotune", "the A/A control", "the profile of kernels"}
    assert set(experiment._skipped()) == (named if quick else set())
    assert experiment.options.controlled is not quick
