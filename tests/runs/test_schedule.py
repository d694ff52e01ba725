"""Several jobs at once: each GPU runs one, or three that share it, rows are exactly once, and Ctrl-C leaves nothing.

The GPUs are simulated: the leases are real, and the jobs sleep or are real ones on the CPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN_ENV, ROOT, manifest, rows, small_fingerprint
from sampled import seen
from test_report import result

from repro import config
from repro.bundle.write import Bundle
from repro.engines import choose, registry, resources
from repro.engines.base import Attempt, Engine, Slots
from repro.engines.local import LocalEngine
from repro.engines.resources import Lease
from repro.errors import BundleError, EngineError, EngineGone, JobLost, UsageError
from repro.fingerprint import gpu
from repro.fingerprint.query import hashed
from repro.records.fixture import FixtureRecord
from repro.records.job import Job, Outcome
from repro.records.options import MODES, Options
from repro.records.row import Planned
from repro.runs.loop import Run, divided
from repro.runs.progress import Progress
from repro.runs.rows import Row, keep
from repro.runs.schedule import Interrupted
from repro.system.jsonio import Json

GPUS = ("GPU-a", "GPU-b")
SOLUTION = (("a", "a.py", "f"),)


class Simulated(Engine):
    """An engine with real leases of GPUs that do not exist. It records which job held which, from when to when, s."""

    name, device = "local", "cuda"

    def __init__(self, gpus: tuple[str, ...] = GPUS, job_s: float = 0.05) -> None:
        self.names, self.job_s = gpus, job_s
        self.held = []
        self.stopping = threading.Event()
        self.description = {"engine": "local", "isolation": "none"}
        self.failing = lambda job: None
        self.result = lambda gpu, job: {"telemetry": {"of": job}}

    def capacity(self) -> Slots:
        return Slots(dict.fromkeys(self.names, ""), 4, 32 << 30, shared=3)

    def close(self, *, now: bool = False) -> None:
        self.stopping.set()

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Attempt:
        avoid, shares = max(job.avoid for job in jobs), all(job.shares for job in jobs)
        with resources.hold(list(map(Lease, self.names)), progress, self.stopping, avoid, shares) as lease:
            for job in jobs:
                begin = time.monotonic()
                self.failing(job.id)
                if self.stopping.wait(self.job_s):
                    return "the job was killed"
                self.held.append((str(lease.gpu), job.id, begin, time.monotonic()))
                machine = small_fingerprint(gpu_uuid_hash=hashed(str(lease.gpu)))
                yield Outcome(job.id, "done", self.result(str(lease.gpu), job.id), fingerprint=machine)
        return ""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of leases."""
    monkeypatch.setenv("REPRO_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def planned(count: int, shares: bool = False) -> list[Row]:
    jobs = [Job(f"row{n}", "fingerprint", files={"solution_0.py": b"# %d" % n}, shares=shares) for n in range(count)]
    return [Row(Planned(row=job.id), job) for job in jobs]


def go(
    results: Path, engine: Engine, count: int = 8, shares: bool = False, *, resume: bool = False,
    jobs: int | None = None, **how: int
) -> tuple[Bundle, list[Any]]:  # fmt: skip
    run, rows_ = Run(engine, results, Progress(quiet=True), resume=resume, jobs=jobs), planned(count, shares)
    bundle = run.open("evaluate", rows_, {})
    return bundle, run.execute(rows_, bundle, lambda row: "", **how)


def overlaps(held: list[tuple[str, str, float, float]]) -> int:
    """The pairs of jobs that held something at the same time."""
    return sum(a[2] < b[3] and b[2] < a[3] for at, a in enumerate(held) for b in held[:at])


def of(engine: Simulated, gpu: str) -> list[tuple[str, str, float, float]]:
    return [each for each in engine.held if each[0] == gpu]


def left(results: Path) -> tuple[Path, dict[str, Json], Json]:
    """The one bundle below a folder, its rows and its manifest."""
    (path,) = results.glob("*-evaluate")
    return path, rows(path), manifest(path)


# -- GPUs


def test_two_gpus_run_two_jobs_at_once_and_never_share_one(tmp_path):
    engine = Simulated()
    bundle, found = go(tmp_path, engine)
    assert overlaps(engine.held) > 0, "both GPUs worked at the same time"
    assert all(len(of(engine, gpu)) >= 2 and overlaps(of(engine, gpu)) == 0 for gpu in GPUS)
    assert [row.row for row in found] == bundle.manifest["plan"] and sorted(bundle.rows) == sorted(
        job for _, job, _, _ in engine.held
    )
    on = {job: hashed(gpu) for gpu, job, _, _ in engine.held}
    assert {row.row: row.gpu_uuid_hash for row in found} == on, "every row names its GPU"


def test_a_job_that_fails_where_a_gpu_is_shared_is_run_again_alone(tmp_path):
    engine, once = Simulated(("GPU-a",)), ["row0"]

    def crowded(job: str) -> None:
        if job in once:
            once.clear()
            raise EngineError("no memory")

    engine.failing = crowded
    go(tmp_path, engine, 8, shares=True)
    (again,) = (each for each in engine.held if each[1] == "row0")
    assert overlaps([again, *engine.held]) == overlaps(engine.held) + 1 > 1


@pytest.mark.parametrize(("why", "times"), [("CUDA out of memory", 2), ("mat1 and mat2 must have one dtype", 1)])
def test_a_class_that_only_lacked_memory_is_measured_again_alone(tmp_path, why, times):
    engine = Simulated(("GPU-a",))
    refused = {"bf16": f"torch cannot run it so on this device: {why}"}
    engine.result = lambda *_: FixtureRecord.model_construct(refused_classes=refused)
    go(tmp_path, engine, 1, shares=True)
    assert len(engine.held) == times


def test_on_several_gpus_the_longest_rows_come_first(tmp_path):
    """By class, and by an earlier run where there is one."""
    some = [
        Row(Planned(row=key, problem=key), Job(key, "evaluate", options=Options(modes=modes), solutions=SOLUTION))
        for key, modes in (("L1_36", MODES), ("L1_82", ("eager",)), ("L3_20", MODES))
    ]
    run = Run(Simulated(GPUS), tmp_path, Progress(quiet=True))
    for earlier_s, first in ({}, {"L3_20", "L1_36"}), ({"L1_82": 99.0, "L3_20": 9.0}, {"L1_82", "L1_36"}):
        bundle = run.open("evaluate", some, run.parameters())
        for name, wall_s in earlier_s.items():
            bundle.add({"row": name, "status": "done", "content": "0", "wall_s": wall_s, "result": {}, "error": ""})
        run.engine.held, both = [], threading.Barrier(2)
        run.engine.failing = lambda job, first=first, both=both: job in first and both.wait(60)
        bundle = run.open("evaluate", some, run.parameters())
        measured = run.execute(some, bundle, lambda row: "")
        began = [job for _, job, _, _ in sorted(run.engine.held, key=lambda held: held[2])]
        assert {*began[:2]} == first, "these begin at once, in any order"
        assert [row.row for row in measured] == bundle.manifest["plan"], "the report keeps the plan's order"


RECORDED = {
    "run": ("h100-pinned/20261128T000308Z-run", "h200-pinned/20261123T130313Z-run"),
    "claims": ("h100-pinned/20261124T055615Z-benchmark", "h200-pinned/20261124T133107Z-benchmark"),
}


def told(row: Json) -> Row:
    """A recorded row as it was planned: its solutions, and whether baselines were compiled for it."""
    count = len(row.get("rounds") or range(2 if row.get("number") else 1))
    modes = ("eager",) if row.get("rounds") or row.get("control") else MODES
    job = Job(row["row"], "evaluate", options=Options(modes=modes), solutions=SOLUTION * count)
    plan = Planned(row=row["row"], problem=row["problem"])
    return Row(plan, job, group="profiles" if row.get("profile") else "")


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize("kind", RECORDED)
def test_gpus_end_at_about_the_same_time(kind, gpus):
    """By the recorded lengths of the ten with their controls, and of every row of the claims."""
    found = [Bundle.open(config.ARTIFACTS_DIR / "results" / name) for name in RECORDED[kind]]
    wall_s, other_s = ({name: row["wall_s"] for name, row in bundle.rows.items()} for bundle in found)
    some = [told(found[0].rows[name]) for name in found[0].manifest["plan"]]
    for known in {}, other_s:
        ends = [0.0] * gpus
        for batch in divided(some, 32 if kind == "run" else 1, gpus, known):
            heapq.heapreplace(ends, ends[0] + sum(wall_s[row.id] for row in batch))
        assert max(ends) <= 1.15 * max(*wall_s.values(), sum(wall_s.values()) / gpus)


def test_timed_jobs_of_all_runs_have_a_gpu_alone_and_three_others_share_one(tmp_path):
    engines = [Simulated() for _ in range(4)]
    how = [(tmp_path / str(n), each, 8, n > 1) for n, each in enumerate(engines)]
    threads = [threading.Thread(target=go, args=each) for each in how]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for name in GPUS:
        timed, shared = (of(a, name) + of(b, name) for a, b in (engines[:2], engines[2:]))
        assert overlaps(timed + shared) == overlaps(shared)
        assert max(sum(b[2] <= a[2] < b[3] for b in shared) for a in shared) <= resources.SHARED


def test_batches_fill_the_gpus_and_keep_the_rows_of_a_problem_together():
    sizes = [list(map(len, divided(planned(20), *how, {}))) for how in ((32, 1), (1, 2), (32, 2))]
    assert sizes == [[20], [1] * 20, [5, 3, 3, 2, 2, 2, 2, 1]], "the last ones are short"
    earlier = {row.id: 9.0 for row in planned(20)}
    assert list(map(len, divided(planned(20), 32, 2, earlier))) == [9, 9, 1, 1], "dealt out, but the last"
    two = [replace(row, plan=Planned(row=row.id, problem=f"L1_{n // 2}")) for n, row in enumerate(planned(20))]
    assert [[row.plan.problem for row in batch] for batch in divided(two, 32, 4, {})] == [
        [f"L1_{n}"] * 2 for n in range(10)
    ]


def test_the_cpu_runs_as_many_jobs_as_are_asked_for_or_fit(tmp_path):
    for jobs, most in ((1, 0), (2, 1), (None, 1)):
        engine = Simulated(())
        go(tmp_path / str(jobs), engine, 6, jobs=jobs)
        assert (overlaps(engine.held) > 0) == bool(most)
    assert (Slots(cpus=2).at_once(10), Slots(dict.fromkeys(GPUS, ""), 64).at_once(10), Slots().at_once(10)) == (2, 2, 1)
    found = [Slots(cpus=cpus, memory=gib << 30).at_once() for cpus, gib in ((2, 23), (4, 23), (64, 512), (2, 4))]
    assert found == [2, 2, 8, 1]


def test_each_gpu_has_whole_cores_of_one_socket(tmp_path, monkeypatch):
    """Eight processors: two sockets of two cores with two threads each, numbered as Linux does."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
        (folder / "physical_package_id").write_text(f"{cpu % 2}\n")
    monkeypatch.setattr(resources, "_PROCESSORS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert [sorted(lease.cpus) for lease in resources.leases(list(GPUS))] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [lease.cpus for lease in resources.leases(["GPU-a"])] == [frozenset()], "one GPU keeps all"
    assert not any(lease.cpus for lease in resources.leases([f"GPU-{n}" for n in range(5)])), "fewer cores than GPUs"
    monkeypatch.setattr(resources, "visible", lambda: list(GPUS))
    assert [sorted(lease.cpus) for lease in resources.leases(["GPU-b"])] == [[1, 3, 5, 7]], "also where a run uses one"
    assert Lease("GPU-a", frozenset({4, 0})).cpuset == "0,4" and Lease("GPU-a").cpuset is None


@pytest.mark.slow
@pytest.mark.skipif(len(resources.cores()) < 2, reason="needs two cores")
def test_real_jobs_of_two_gpus_run_at_once_on_cores_of_their_own(tmp_path):
    engine = LocalEngine(gpus="none", device="cpu")
    engine.gpus = resources.leases(list(GPUS))
    found = [Row(Planned(row=f"row{n}"), Job(f"row{n}", "fingerprint", device="cpu")) for n in range(2)]
    run = Run(engine, tmp_path, Progress(quiet=True))
    bundle = run.open("evaluate", found, {})
    before = os.sched_getaffinity(0)
    measured = run.execute(found, bundle, lambda row: "")
    assert os.sched_getaffinity(0) == before
    values = bundle.fingerprints()[str(measured[0].fingerprint_id)]["values"]
    assert [row.status for row in measured] == ["done"] * 2
    assert values["visible_devices"]["value"] == "1 by UUID"
    assert values["cpu_count"]["value"] == len(engine.gpus[0].cpus) < len(before)


# -- engines


def test_an_engine_is_chosen_by_its_registered_name(monkeypatch):
    monkeypatch.setitem(registry.FACTORIES, "simulated", lambda gpus, device: Simulated(tuple(gpus.split(","))))
    engine = choose("simulated", gpus="GPU-x", device="cuda", say=print)
    assert list(engine.capacity().gpus) == ["GPU-x"]
    with pytest.raises(UsageError, match="no engine 'slurm': there are auto, docker, local, ray, simulated"):
        choose("slurm", gpus="all", device="cpu", say=print)


# -- losses


class Losing(Simulated):
    """An engine whose nodes die: it loses each job as often as a test says, before or after its outcome."""

    def __init__(self, losses: dict[str, int], *, late: bool = False) -> None:
        super().__init__()
        self.losses, self.late, self.began = losses, late, []

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Attempt:
        for job in jobs:
            self.began.append(job.id)
            lost = self.began.count(job.id) <= self.losses.get(job.id, 0)
            if not lost or self.late:
                yield Outcome(job.id, "done", {"telemetry": {"of": job.id}})
            if lost:
                raise JobLost("the node died")
        return ""


def test_lost_jobs_start_again_with_a_bound_and_rows_are_written_once(tmp_path):
    engine = Losing({"row1": 2, "row3": 99})
    bundle, found = go(tmp_path, engine, 5, together=5)
    assert [row.status for row in found] == ["done", "done", "done", "failed", "done"]
    assert "lost 4 times: the node died" in found[3].error
    assert engine.began.count("row1") == 3 and engine.began.count("row3") == 4
    assert len((bundle.path / "rows.jsonl").read_text().splitlines()) == 5


def test_a_loss_after_the_outcome_is_no_loss(tmp_path):
    engine = Losing(dict.fromkeys(("row0", "row1", "row2"), 9), late=True)
    _, found = go(tmp_path, engine, 3, together=3)
    assert [row.status for row in found] == ["done"] * 3 and len(engine.began) == 3


def test_a_job_that_ran_twice_is_one_row(tmp_path):
    bundle, _ = go(tmp_path, Simulated(), 2)
    rows_ = planned(2)
    for value in ("again", "and again"):
        keep(bundle, rows_[0], Outcome("row0", "done", {"telemetry": {"of": value}}))
    lines_ = list(map(json.loads, (bundle.path / "rows.jsonl").read_text().splitlines()))
    assert len(lines_) == 2 and all(line["result"]["telemetry"]["of"] == line["row"] for line in lines_)


# -- throttled


def heated(monkeypatch: pytest.MonkeyPatch, *gpus: str) -> Simulated:
    """An engine whose first GPU is always throttled, and cool as soon as it idles."""
    monkeypatch.setattr(gpu, "cool", lambda uuid: True)
    engine, judged = Simulated(gpus), result("L1_36@bf16", {"mine": 4.0})
    hot, calm = seen({"hw_thermal": (4.0, 4.2)}), seen({})  # here, for it replaces clocks that threads share
    engine.result = lambda gpu, job: judged | (hot if gpu == "GPU-a" else calm)
    return engine


def test_a_throttled_row_is_measured_again_on_another_gpu(tmp_path, monkeypatch):
    engine = heated(monkeypatch, *GPUS)
    _, found = go(tmp_path, engine, 4)
    assert {row.judged.no_measurement for row in found} == {""} and len(of(engine, "GPU-b")) == 4
    assert {row.row for row in found if row.measured_again} == {job for _, job, _, _ in of(engine, "GPU-a")} != set()


def test_a_row_that_could_not_be_measured_again_stays_and_resume_goes_on(tmp_path, monkeypatch):
    signals = [signal.SIGINT]

    def start(job: str) -> None:
        if engine.held:
            if signals:
                os.kill(os.getpid(), signals.pop())
                engine.stopping.wait()
            raise EngineError("it broke")

    for ends in (Interrupted, ()):
        engine = heated(monkeypatch, "GPU-a")
        engine.failing = start
        with contextlib.suppress(ends):
            bundle, (row,) = go(tmp_path, engine, 1, resume=True)
    assert row.status == "done" and len(row.measured_again) == 1 and bundle.manifest["status"] == "complete"


def test_a_gpu_that_stays_hot_is_waited_for_with_a_bound(monkeypatch):
    said = []
    monkeypatch.setattr(resources, "_COOL_S", 0.4)
    with resources.hold([Lease("GPU-a")], said.append, None, "a hash"):
        assert said == ["waiting for a GPU: at most 0 s, for one that is not throttled"]


# -- failures


def test_an_engine_that_goes_away_keeps_the_rows_and_starts_nothing_more(tmp_path):
    def gone(job: str) -> None:
        if job == "row2":
            raise EngineGone("the engine went away")

    engine = Simulated()
    engine.failing = gone
    with pytest.raises(EngineError, match="went away: the rows measured before are in"):
        go(tmp_path, engine, 40)
    path, found, facts = left(tmp_path)
    assert facts["status"] == "incomplete" and facts["error"] == "the engine went away"
    kept = {name for name, row in found.items() if row["status"] == "done"}
    assert found["row2"]["status"] == "lost" and kept and len(found) < 40
    again = Simulated()
    bundle, _ = go(tmp_path, again, 40, resume=True)
    assert bundle.path == path and {row["status"] for row in rows(path).values()} == {"done"}
    assert {job for _, job, _, _ in again.held} == {f"row{n}" for n in range(40)} - kept


def test_an_error_of_the_bundle_stops_all_jobs(tmp_path, monkeypatch):
    engine = Simulated(job_s=0.2)
    add = Bundle.add

    def full(bundle: Bundle, row: Json) -> None:
        if row["row"] == "row3":
            raise BundleError("cannot write", "No space left on device")
        add(bundle, row)

    monkeypatch.setattr(Bundle, "add", full)
    with pytest.raises(BundleError, match="No space left"):
        go(tmp_path, engine, 40)
    assert left(tmp_path)[2]["status"] == "failed" and len(engine.held) < 8


def test_a_refused_job_fails_alone(tmp_path):
    def refuse(job: str) -> None:
        if job == "row1":
            raise EngineError("the engine refused a job", "no memory")

    engine = Simulated()
    engine.failing = refuse
    _, found = go(tmp_path, engine, 6)
    assert [row.row for row in found if row.status == "failed"] == ["row1"]


# -- Ctrl-C


def free(state: Path) -> bool:
    """Whether no lease is held."""
    for file in state.glob("gpu-*.lock"):
        with file.open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return bool(list(state.glob("gpu-*.lock")))


def test_ctrl_c_ends_both_jobs_and_keeps_the_rows_before(tmp_path, state):
    engine = Simulated(job_s=0.1)

    def fourth(job: str) -> None:
        if job == "row4":
            os.kill(os.getpid(), signal.SIGINT)
        if int(job[3:]) >= 4:
            engine.stopping.wait(60)

    engine.failing = fourth
    with pytest.raises(Interrupted, match=r"rows are in .*; unfinished: row\d.*--resume"):
        go(tmp_path, engine, 30)
    path, found, facts = left(tmp_path)
    assert facts["status"] == "interrupted" and 2 <= len(found) <= 4
    assert {row["status"] for row in found.values()} == {"done"}, "a job that the run ended has no row"
    assert free(state)
    bundle, _ = go(tmp_path, Simulated(job_s=0.01), 30, resume=True)
    assert bundle.path == path and sorted(rows(path)) == sorted(bundle.manifest["plan"])


def test_a_second_ctrl_c_kills_what_does_not_end(tmp_path):
    """The job ignores a first `close`, as a container does whose engine is slow, and ends when it is killed."""
    killed = threading.Event()

    class Deaf(Simulated):
        def close(self, *, now: bool = False) -> None:
            if now:
                killed.set()
            else:
                os.kill(os.getpid(), signal.SIGINT)

        def _attempt(self, jobs: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Attempt:
            os.kill(os.getpid(), signal.SIGINT)
            killed.wait(20)
            yield Outcome(jobs[0].id, "failed", error="killed")
            return ""

    begin = time.monotonic()
    with pytest.raises(Interrupted):
        go(tmp_path, Deaf(GPUS[:1]), 2)
    (path,) = tmp_path.glob("*-evaluate")
    assert killed.is_set() and time.monotonic() - begin < 10 and manifest(path)["status"] == "interrupted"


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        engine = Simulated(job_s=0.01)
        engine.failing = lambda job: os.kill(os.getpid(), signal.SIGINT)
        _, found = go(tmp_path, engine, 3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(found) == 3


TAKE = """
import os, sys
from repro.engines import resources
from repro.engines.resources import Lease
for uid in 12345, 12346:
    if os.fork() == 0:
        os.setgid(uid)
        os.setuid(uid)
        with resources.hold([Lease("GPU-x")], print):
            print("held", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
def test_users_of_a_machine_share_its_leases(open_folder):
    """The second user could not open the lock that the first had made."""
    env = CLEAN_ENV | {"REPRO_STATE": str(open_folder / "state"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", TAKE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "held\nheld\n", done.stderr
