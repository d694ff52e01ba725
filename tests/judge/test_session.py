"""Whole judgements at smoke size on the CPU, through real workers: answers without work, answers that change, workers
that write on the wire, shapes beside the own one, the quick way in one process."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from conftest import smoke_problem
from test_verdict import ONCE

from repro.errors import SolutionRejected
from repro.fixtures import calibration
from repro.judge import session, verdict
from repro.judge.correctness import comparison, distance, trials
from repro.judge.correctness import reference as reference_module
from repro.judge.correctness import workers as worker_processes
from repro.judge.gpu import input_buffers, shared_memory
from repro.judge.implementation import Implementation, Options
from repro.judge.processes import client
from repro.judge.processes import launcher as launch
from repro.judge.timing import experiment as experiment
from repro.judge.timing import sampling, timed_call
from repro.judge.timing.experiment import DISTURBED_CODE, Blamed, Experiment
from repro.judge.timing.l2_flush_and_idle import Idle
from repro.judge.timing.sampling import Runner, Sample, Series
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records.result import Timing
from repro.system import jsonio
from repro.system.stopwatch import Clock

CPU = torch.device("cpu")
VERDICTS = Options(device="cpu", timing=False, timeout_s=60)
TIMED = Options(device="cpu", timing=True, timeout_s=60, timing_budget_s=0.5, modes=("eager",))
BRIEF = TIMED.but(timing_budget_s=1e-6)  # one cycle of blocks
LONGER = TIMED.but(timing_budget_s=30.0, max_blocks=80)  # a certain number of calls


# -- answers without work

CHEATS = {
    "zeros": "return torch.zeros_like(super().forward(*inputs))",
    "mean": "y = super().forward(*inputs)\n        return y.mean(0, keepdim=True).expand_as(y).contiguous()",
    "stale": "y = super().forward(*inputs)\n        ModelNew.first = y if ModelNew.first is None else ModelNew.first\n"
    "        return ModelNew.first.clone()",
    "honest": "return super().forward(*inputs)",
}


def wrapped(folder: Path, problem: Problem, name: str, body: str, top: str = "") -> Path:
    """The problem's own file with a ModelNew whose forward is `body`; `top` comes before the class."""
    file = folder / f"{name.replace(' ', '_')}.py"
    header = "\n\nclass ModelNew(Model):\n    first = None\n\n    def forward(self, *inputs):\n        "
    file.write_text(f"{problem.path.read_text()}\n{top}{header}{body}\n")
    return file


# Right answers of L1_36 that do something beside it; `y` is the answer.
RIGHT = "x, = inputs\n        y = super().forward(x)\n        {}\n        return y"


def right(extra: str) -> str:
    """A right forward of any problem with one input, with statements of its own before it returns `y`."""
    return RIGHT.format(extra.replace("\n", "\n        "))


@pytest.fixture
def judged(tmp_path, smoke_fixture):
    """Judges solutions: name -> result, and the whole. bodies: name -> forward, or forward and what stands above the
    class."""

    def judge(bodies, options=VERDICTS, key="L1_36", **more):
        problem = smoke_problem(key)
        forward_and_top = {n: (body, "") if isinstance(body, str) else body for n, body in bodies.items()}
        solutions = [(n, wrapped(tmp_path, problem, n, *both), "ModelNew") for n, both in forward_and_top.items()]
        found = session.evaluate(problem, smoke_fixture(key), solutions, options, **more)
        return {entry.solution: entry for entry in found.results}, found

    return judge


HONEST = right("")


def outcome(entry) -> tuple[str, str]:
    """Verdict and the code of the first reason."""
    return entry.verdict, entry.reasons[0].code if entry.reasons else ""


def outcomes(found) -> dict[str, tuple[str, str]]:
    """The outcome of every solution."""
    return {name: outcome(entry) for name, entry in found.items()}


CORRECT = ("correct", "")


@pytest.mark.slow
def test_each_further_load_has_new_workers_in_the_opposite_order(judged, monkeypatch):
    starts = []
    start = worker_processes.Workers.start
    monkeypatch.setattr(
        worker_processes.Workers, "start",
        lambda of, *all_, **how: (starts.append([each.name for each in all_]), start(of, *all_, **how)),
    )  # fmt: skip
    monkeypatch.setattr(session, "_differ", lambda _: True)
    _, found = judged({"old": HONEST, "new": HONEST}, BRIEF.but(reloads=True))
    assert list(map(outcome, found.results)) == [CORRECT] * 2
    begun = [names for started in starts if (names := [name for name in started if name in ("old", "new")])]
    assert begun == [["old", "new"], ["new", "old"]] * 2 + [["old", "new"]]
    assert all({"old", "new"} <= load.samples_ms.keys() for load in [*found.loads, found]) and len(found.loads) == 4


@pytest.mark.alike
@pytest.mark.parametrize("key", [key if key == "L1_36" else pytest.param(key, marks=pytest.mark.slow) for key in ONCE])
def test_answers_without_work_are_incorrect_on_every_problem(key, judged):
    """Zeros, the mean over the batch and the first output ever computed, through the real worker; work is correct."""
    names = ["zeros", "mean", "stale"] + (["honest"] if key in ("L1_36", "L3_44", "L1_77@bf16") else [])
    _, found = judged({name: CHEATS[name] for name in names}, key=key)
    assert len(found.trials) >= 2
    for entry in found.results:
        assert entry.verdict == ("correct" if entry.solution == "honest" else "incorrect"), entry
        assert entry.verdict == "correct" or entry.reasons[0].code in distance.GUARDS
    assert json.loads(jsonio.dumps(found.to_json()))["timing"]["status"] == "not_timed"


def test_a_solution_that_failed_holds_no_memory_while_the_others_are_judged(judged):
    """Its worker ends with its verdict: one that filled the GPU must not make the next one run out of memory."""
    bodies = {"hoarder": "raise MemoryError('all mine')", "next": "return super().forward(*inputs)"}
    launcher, alive = launch.current(), []

    def progress(line):
        if ": next " in line:
            alive.append(len(launcher.workers()))

    found, _ = judged(bodies, key="L1_04@bf16", progress=progress)
    assert outcome(found["hoarder"]) == ("error", "out_of_memory")
    assert found["next"].verdict == "correct", found["next"]
    assert alive and set(alive) == {1} and not launcher.workers(), "one worker is left"


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("key", ["L1_97", "L1_77@bf16", "L3_43"])
def test_fixtures_measured_in_chunks_of_one_row_are_those_of_the_whole(key, smoke_fixture, monkeypatch):
    """At full size nothing fits at once; cheats agree closely, honest kernels as far as torch sums in another order."""
    whole = smoke_fixture(key)
    monkeypatch.setattr(reference_module, "CPU_CHUNK_BYTES", 1)
    chunked = calibration.build(smoke_problem(key), CPU)
    assert chunked.output == whole.output and chunked.trials.keys() == whole.trials.keys()
    for kind, trial in whole.trials.items():
        again = chunked.trials[kind]
        assert again.sensitivity == pytest.approx(trial.sensitivity, rel=1e-4)
        for name, values in trial.cheats.items():
            guards = [g for g in distance.GUARDS if g in values]
            assert {g: again.cheats[name][g] for g in guards} == pytest.approx(
                {g: values[g] for g in guards}, rel=1e-4
            ), (kind, name)
        for name, values in trial.honest.items():
            assert again.honest[name]["rel_l2"] == pytest.approx(values["rel_l2"], rel=0.2, abs=1e-7), (kind, name)


@pytest.mark.parametrize("key", ["L1_97", "L1_77@bf16"])
def test_every_row_is_compared_also_where_the_reference_comes_in_chunks(key, judged, smoke_fixture, monkeypatch):
    """Row by row: an output with permuted strides is right, one whose last row alone is wrong is not."""
    smoke_fixture(key)  # which other tests use too: measured before the patch
    monkeypatch.setattr(reference_module, "CPU_CHUNK_BYTES", 1)
    bodies = {
        "permuted": "y = super().forward(*inputs)\n        return y.transpose(-1, 1).contiguous().transpose(-1, 1)",
        "last row": "y = super().forward(*inputs).clone()\n        y[-1, -1] = y[0, 0]\n        return y",
    }
    found, _ = judged(bodies, key=key)
    assert [entry.verdict for entry in found.values()] == ["correct", "incorrect"], found


# -- what becomes of a solution

# Writes a line into every pipe that can be written to: the worker has one, on which it answers.
WRITE = """
import os, stat, threading, time

def write(line):
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, line)
        except OSError:
            pass

def write_later():
    time.sleep(0.2)
    write(b'{"n": 1, "output": null}\\n')
"""
FORGED = {
    "an answer ahead": ("", 'write(b\'{"n": 7, "confined": {}}\\n\')'),
    "an answer with another number": ('write(b\'{"n": 12345, "output": null}\\n\')', ""),
    "no line": ("write(b'y')", ""),
    "a line later": ("threading.Thread(target=write_later, daemon=True).start()", ""),
}


def test_an_answer_that_the_worker_did_not_give_is_tampering(judged):
    """The solution finds the pipe on which its worker answers. Whatever it writes there, it is rejected, and the next
    solution is judged as ever."""
    # the line later comes while the judge compares or asks again: calls go on long enough
    forged = {way: (right(f"{call}\ntime.sleep(0.1)"), WRITE + top) for way, (call, top) in FORGED.items()}
    found, _ = judged({**forged, "honest": HONEST})
    for way in FORGED:
        assert outcome(found[way]) == ("rejected", "protocol_tampered"), found[way]
        assert found[way].precision_class is None and len(found[way].distances) < 3
    assert outcome(found["honest"]) == CORRECT


# Has the program around a solution answer with nothing to requests of one kind.
EMPTY = """
for kind in object.__subclasses__():
    if "worker" in kind.__module__ and hasattr(kind, "{0}"):
        type.__setattr__(kind, "{0}", lambda self, *arguments, **named: {{}})
"""


@pytest.mark.slow
def test_an_answer_that_holds_nothing_ends_its_solution_alone(judged):
    """Where the judge took for granted what an answer holds it ended itself, and all solutions beside it."""
    expected = {
        "run": ("incorrect", "wrong_structure"),
        "again": ("rejected", "deferred_write"),
        "go": ("rejected", "impossible_time"),
        "seal": ("rejected", "deferred_write"),
        "look": ("incorrect", "wrong_structure"),
        "": CORRECT,
    }
    bodies = {op: (HONEST, EMPTY.format(op) if op else "") for op in expected}
    found, _ = judged({op or "honest": body for op, body in bodies.items()}, BRIEF)
    assert outcomes(found) == {op or "honest": told for op, told in expected.items()}


# Adds to the last bit of one element for as long as the process lives: never far enough to be wrong.
LATER = "threading.Thread(target=creep, args=(y,), daemon=True).start()"
CREEP = """
import threading, time

def creep(y):
    bits = y.view(-1)[:1].view(torch.int32)
    for _ in range(2000):
        bits += 1
        time.sleep(0.001)
"""


AGAIN = "again = ModelNew.first == float(x.sum())\nModelNew.first = float(x.sum())\n"
# Solutions whose answer to a trial's first call alone is right, and the reason code.
UNSTEADY = {
    "changes after its call": ((right(LATER), CREEP), "rejected", "deferred_write"),
    "is wrong in a repeat": (right(AGAIN + "y = 1.5 * y if again else y"), "incorrect", "nondeterministic_wrong"),
    # of such answers half would pass one look at each of the later trials
    "is wrong in a repeat of a later trial": (
        right(AGAIN + "ModelNew.news = getattr(ModelNew, 'news', 0) + (not again)\n"
              "y = 1.5 * y if again and ModelNew.news > 3 else y"), "incorrect", "nondeterministic_wrong",
    ),
}  # fmt: skip


def test_an_output_that_does_not_stay_right_fails(judged):
    found, _ = judged({how: body for how, (body, *_) in UNSTEADY.items()})
    assert outcomes(found) == {how: (v, c) for how, (_, v, c) in UNSTEADY.items()}


def test_right_solutions_are_correct_and_labelled_with_what_they_do(judged):
    """Atomics sum in another order at every call, and the memory of every answer may be the same: no fault, and said.
    So is how a worker is confined; and where this process may not give it a user of its own, that it has none."""
    static = right("if ModelNew.first is None or ModelNew.first.shape != y.shape:\n    ModelNew.first = y.clone()\n"
                   "y = ModelNew.first.copy_(y)")  # fmt: skip
    noisy = right("y = y * (1 + 1e-6 * torch.rand_like(y))")
    found, _ = judged({"noisy": noisy, "static": static, "steady": HONEST})
    assert set(map(outcome, found.values())) == {CORRECT}
    for label, name in (("nondeterministic", "noisy"), ("static_output", "static")):
        assert [other for other, entry in found.items() if label in entry.labels] == [name]
    steady = found["steady"]
    assert steady.trust == "audited" and steady.separation == "process"
    assert {"landlock", "seccomp", "capabilities", "no_new_privs", "limits"} <= steady.confined.keys()
    assert steady.confined["seccomp"] == "applied"
    kinds = {kind: trials.REPEATS * len(values) for kind, values in steady.distances.items()}
    assert {kind: len(values) for kind, values in found["noisy"].distances.items()} == kinds, "each that differs"


def test_weights_that_are_kept_from_the_first_call_are_incorrect(judged):
    """Right with the published weights; other weights are loaded later, and the answer must follow them."""
    body = (
        "ModelNew.first = self.conv2d.weight.clone() if ModelNew.first is None else ModelNew.first\n"
        "        return torch.nn.functional.conv2d(inputs[0], ModelNew.first, stride=self.conv2d.stride,\n"
        "            padding=self.conv2d.padding, groups=self.conv2d.groups)"
    )
    found, _ = judged({"kept": body, "honest": HONEST}, key="L1_82")
    assert found["kept"].verdict == "incorrect" and outcome(found["honest"]) == CORRECT
    assert {reason.trial for reason in found["kept"].reasons} == {"perturbed", "perturbed_stress"}


def test_a_source_that_uses_what_none_may_is_rejected_without_being_run(judged, monkeypatch):
    """No worker is started for it; its line is named."""
    started = []

    class Recorded(client.WorkerProcess):
        def __init__(self, name, *args, **keywords):
            started.append(name)
            super().__init__(name, *args, **keywords)

    monkeypatch.setattr(worker_processes, "WorkerProcess", Recorded)
    bodies = {"banned": (right("sys._getframe()"), "import sys\n"), "honest": HONEST}
    found, _ = judged(bodies)
    assert outcome(found["banned"]) == ("rejected", "banned") and outcome(found["honest"]) == CORRECT
    assert found["banned"].reasons[0].detail.startswith("line ") and found["banned"].confined == {}
    assert found["banned"].distances == {} and found["banned"].time_ms is None
    assert started == ["honest"]


# -- timing


# Right for as long as it is verified.
LAZY = right("ModelNew.first = (ModelNew.first or 0) + 1\nif ModelNew.first > 73:\n    y = torch.zeros_like(y)")


def test_outputs_are_compared_whole_at_a_secret_call_of_every_turn():
    places = {}
    for _ in range(200):
        turns = sampling.Turns()
        whole = [number for number in range(68) if turns.now(20)]
        assert len(whole) == 4 and whole[0] < sampling.CYCLE
        for turn, number in enumerate(whole):
            places.setdefault(turn, set()).add(number)
    assert places[0] == set(range(8)) and places[1] == set(range(8, 28)) and places[3] == set(range(48, 68))


# Binds itself, in one timed call, to an output that it does not have yet.
MADE_UP = """
Worker = next(kind for kind in object.__subclasses__() if kind.__module__.endswith("judge.worker.server"))
seal, tools, calls = Worker.seal, Worker.seal.__globals__["commitment"], []

def made_up(self, key):
    calls.append(key)
    told = seal(self, key)
    if len(calls) == 5:
        nbytes = self.output.numel() * 4
        self.states = [bytes(len(self.states[0]))]
        told = {"roots": [tools.root(self.states[0], nbytes, bytes.fromhex(key))]}
    return told

type.__setattr__(Worker, "se" + "al", made_up)
"""


def test_a_call_is_launched_while_there_is_nothing_to_compute_from(judged, monkeypatch):
    """Its inputs come when its worker is at rest again, and the gate opens when they are there. Where the latency is
    measured nothing is launched ahead."""
    seen = []

    def noted(kind, name, tell):
        method = getattr(kind, name)

        def wrapper(self, *values, **named):
            seen.append(tell(self, *values))
            return method(self, *values, **named)

        monkeypatch.setattr(kind, name, wrapper)

    noted(client.WorkerProcess, "post", lambda worker, message, _: message["op"])
    noted(client.WorkerProcess, "stop", lambda worker: "stop")
    noted(input_buffers.Slots, "spoil", lambda _: "spoil")
    noted(input_buffers.Slots, "fill", lambda *_: "fill")
    noted(shared_memory.Gate, "open", lambda _: "open")
    found, whole = judged({"honest": HONEST}, BRIEF)
    assert outcome(found["honest"]) == CORRECT
    begun = [part[: part.index("seal")] for part in " ".join(seen).split("arm ")[1:]]
    latency = [part for part in begun if "launch" not in part]
    launched = [part.removeprefix("spoil ") for part in begun if "launch" in part]
    count = {c: sum(len(getattr(x, c).wall_ms) for x in whole.samples_ms.values()) for c in ("gated", "open", "other")}
    assert set(latency) == {"stop fill go "} and len(latency) == count["open"]
    assert set(launched) == {"launch stop fill go open "} and len(launched) == count["gated"] + count["other"]


# Needs longer to launch than the judge waits; or cannot.
LATE = """
import time
Worker = next(kind for kind in object.__subclasses__() if kind.__module__.endswith("judge.worker.server"))
launch = Worker.launch

def late(self, number):
    time.sleep(0.02)
    {}
    return launch(self, number)

type.__setattr__(Worker, "lau" + "nch", late)
"""


@pytest.mark.slow
def test_calls_not_launched_in_time_are_launched_late(judged, monkeypatch):
    """A call that waits for results of its own cannot be launched ahead: it is timed all the same. One that fails is
    its solution's error, whenever that is reported."""
    bodies = {"late": (HONEST, LATE.format("")), "fails": (HONEST, LATE.format("raise ValueError('no')"))}
    for patience_s in (0.0, 60.0):
        monkeypatch.setattr(timed_call, "_LAUNCH_S", patience_s)
        found, _ = judged(bodies, BRIEF)
        assert outcome(found["late"]) == CORRECT and found["late"].time_ms.n > 5
        assert outcome(found["fails"]) == ("error", "exception"), found["fails"]


@pytest.mark.slow
def test_a_call_that_is_not_timed_after_all_is_let_go(judged, monkeypatch):
    """Another process is on the GPU when a baseline is to run: its call has been launched, ends, and is timed again."""
    busy, ready = [False, False, True], Idle.ready

    def held_up(self, name, fill, busy_s, **how):
        early_ms = ready(self, name, fill, busy_s, **how)
        return None if how["trusted"] and how["waiting"] and busy and busy.pop(0) else early_ms

    monkeypatch.setattr(Idle, "ready", held_up)
    for patience_s in (0.0, 60.0):
        monkeypatch.setattr(timed_call, "_LAUNCH_S", patience_s)
        for often in (timed_call._TURNS - 1, timed_call._TURNS):  # it is launched that often before the status says so
            busy[:] = [False, False, *[True] * often]
            found, whole = judged({"honest": HONEST}, BRIEF)
            assert outcome(found["honest"]) == CORRECT and not busy
            again = whole.timing.timed_again or ""
            assert ("flushes in a row" in again) is (often == timed_call._TURNS)
            assert not (patience_s and whole.timing.launched_late), "launched in time is not late"


@pytest.mark.slow
def test_calls_that_keep_the_judge_from_the_gpu_while_they_wait_are_launched_late(judged, monkeypatch):
    """As those with side streams do. What runs in them is judged as ever; no other variant's calls change."""
    ready, waited, kept = Idle.ready, Counter[str](), Counter[str]()

    def crowded(self, name, fill, busy_s, **how):
        early_ms = ready(self, name, fill, busy_s, **how)
        waited[name] += how["waiting"]
        kept[name] += not how["waiting"]
        return None if how["waiting"] and name == "honest" else early_ms

    monkeypatch.setattr(Idle, "ready", crowded)
    found, whole = judged({"honest": HONEST, "other": HONEST}, BRIEF)
    assert outcome(found["honest"]) == outcome(found["other"]) == CORRECT
    assert whole.timing.launched_late == ["honest"]
    assert (
        waited["honest"] == timed_call._CROWDED and kept["other"] < waited["other"] < kept["honest"] + waited["honest"]
    )
    found, _ = judged({"honest": LAZY}, LONGER)
    assert outcome(found["honest"]) == ("incorrect", "timed_output_wrong")


class Flushes(Idle):
    """A GPU on which a test says how long a flush takes beside calls that wait and beside others."""

    def __init__(self, waiting_ms: list[float], busy_ms: float = 0.08):
        super().__init__(torch.device("cpu"), watched=True)
        self.cuda, self.quiet_ms, self.waiting_ms, self.busy_ms = True, 0.08, waiting_ms, busy_ms

    def ready(self, name: str, fill: Callable[[], object], busy_s: float, **how: bool) -> float | None:
        took_ms = self.waiting_ms[0] if how.get("waiting") else self.busy_ms
        if how.get("waiting") and len(self.waiting_ms) > 1:
            self.waiting_ms.pop(0)
        self.first_ms.setdefault(name, []).append(took_ms)
        return max(0.0, took_ms - self.quiet_ms) if took_ms < 1 else None


def launched(
    idle: Idle, variant: str, times: int, *, trusted: bool, in_time: tuple[bool, ...] = ()
) -> list[tuple[bool, float]]:
    """For each call: whether it waits at the gate, and for how many microseconds a kernel hides its launch. in_time:
    whether launches are reported in time, where not all are."""
    told = iter(in_time)
    worker = SimpleNamespace(wake=lambda: None, stop=lambda: None, rest=lambda: True, post=lambda *_: None,
                             collect=lambda *_: {}, ask=lambda *_: {},
                             collected=lambda *_: {} if next(told, True) else None)  # fmt: skip
    gate = SimpleNamespace(next=lambda: 1, open=lambda: None)
    implementation = SimpleNamespace(worker=worker, gate=gate, trusted=trusted)
    launching = timed_call.Launching(idle, cast(Any, SimpleNamespace(described=list, spoiled=True)), 1.0, held=True)
    calls = [launching.ready(implementation, variant, lambda: None, 0.0, gated=True)[0] for _ in range(times)]
    return [(each.held, each.gate_us) for each in calls]


def test_late_launches_gain_no_time():
    """Nothing hides the launch of a solution then; of baselines, only graphs are late: what keeps the judge from the
    GPU in the turns of eager must not make its launches its time."""
    ahead, late, gate = (True, 0.0), (False, 0.0), (False, sampling.GATE_US)
    assert launched(Flushes([0.08]), "s", 9, trusted=False) == [ahead] * 9
    assert launched(Flushes([3.0]), "s", 3, trusted=False) == [late] * 3, "of several streams"
    assert launched(Flushes([3.0, 0.08]), "s", 3, trusted=False) == [ahead] * 3, "another process was there once"
    assert launched(Flushes([0.4]), "s", 5, trusted=False) == [ahead] * 2 + [late] * 3, "a little, every time"
    assert launched(Flushes([0.4, 0.08]), "s", 9, trusted=False) == [ahead] * 9
    waits = (False,) * 9
    assert launched(Flushes([0.08]), "s", 4, trusted=False, in_time=waits) == [ahead] + [late] * 3, (
        "for its own results"
    )
    assert launched(Flushes([0.08]), "s", 4, trusted=False, in_time=(False, True) * 9) == [ahead] * 4
    assert launched(Flushes([0.08]), "eager", 4, trusted=True, in_time=waits) == [ahead] * 4
    assert launched(Flushes([3.0]), "reduce_overhead_tf32", 2, trusted=True) == [gate] * 2
    assert launched(Flushes([3.0]), "eager", 3, trusted=True) == [ahead] * 3


def compare_rows_alone(monkeypatch: pytest.MonkeyPatch):
    """No timed output is compared whole: of each, one secret row."""
    monkeypatch.setattr(experiment, "_WHOLE_EVERY", 1 << 60)
    monkeypatch.setattr(sampling.Turns, "now", lambda self, every: False)


def test_baselines_are_asked_for_all_that_solutions_are_in_a_timed_call(judged, monkeypatch):
    """What a worker did last decides how its next call begins, and the judge's clock compares both. Of an H200's calls
    without a gate, those of baselines took 0.15 ms longer on the device than the control's: no row of theirs had been
    fetched."""
    compare_rows_alone(monkeypatch)
    asked = {}
    post = client.WorkerProcess.post

    def noted(worker, message, timeout_s):
        asked.setdefault(worker.name, []).append(message["op"])
        post(worker, message, timeout_s)

    monkeypatch.setattr(client.WorkerProcess, "post", noted)
    found, _ = judged({"honest": HONEST}, BRIEF)
    assert outcome(found["honest"]) == CORRECT
    calls = {name: set(" ".join(ops).split(" arm ")[1:-1]) for name, ops in asked.items()}
    every = {"launch go seal look fetch", "go seal look fetch"}  # behind a gate, and without
    assert calls == {"baseline": every, "honest": every}
    assert {asked[name][asked[name].index("arm") - 1] for name in asked} == {"prepare"}, "what it compiled with is gone"


@pytest.mark.slow
def test_invented_states_are_rejected_in_the_same_call(judged, monkeypatch):
    """Also where only its secret row is compared: the row's segments are compared with their commitment."""
    compare_rows_alone(monkeypatch)
    bodies = {"made_up": (HONEST, MADE_UP), "turned": (right(TURNED), MADE_UP), "honest": right(TURNED)}
    found, _ = judged(bodies, BRIEF)
    assert outcome(found["made_up"]) == outcome(found["turned"]) == ("rejected", "deferred_write")
    assert outcome(found["honest"]) == CORRECT


TURNED = "y = y.transpose(1, -1).contiguous().transpose(1, -1)"


@pytest.mark.slow
def test_outputs_in_any_memory_order_match_their_states(judged, monkeypatch):
    """Every one compared whole: what lies in memory as channels last, or by columns, is as right as any."""
    monkeypatch.setattr(experiment, "_WHOLE_EVERY", 1)
    turned = {"last": TURNED, "columns": TURNED.replace("(1, -1)", "(0, -1)"), "stacked": "y = torch.stack([y, y])[0]"}
    found, _ = judged({name: right(body) for name, body in turned.items()}, BRIEF)
    assert outcomes(found) == dict.fromkeys(turned, CORRECT)


def test_solutions_that_die_or_turn_wrong_while_they_are_timed_end_alone(judged):
    dies = LAZY.replace("y = torch.zeros_like(y)", "os._exit(1)")
    found, whole = judged({"dies": (dies, "import os\n"), "lazy": LAZY, "honest": HONEST}, LONGER)
    assert outcome(found["dies"]) == ("error", "worker_exited"), found["dies"]
    assert outcome(found["lazy"]) == ("incorrect", "timed_output_wrong"), found["lazy"]
    assert found["lazy"].time_ms is None and found["lazy"].reasons[0].trial == "timing"
    assert not {"dies", "lazy"} & whole.samples_ms.keys() and found["honest"].time_ms.n > 0
    assert outcome(found["honest"]) == CORRECT and found["honest"].speedup["eager"].ratio > 0


def test_times_of_the_cpu_have_every_sample_and_are_no_measurement(judged):
    found, whole = judged({"honest": HONEST}, TIMED)
    entry = found["honest"]
    assert set(whole.samples_ms) == {"eager", "eager_fp32", "honest"} == {"honest", *whole.baselines}
    assert len(whole.samples_ms["honest"].gated.device_ms) == entry.time_ms.n
    for samples in whole.samples_ms.values():  # what decides nothing may be left behind
        assert 0 < len(samples.gated.device_ms) <= entry.time_ms.n
        assert 0 < len(samples.open.host_ms) <= entry.latency_ms.n
        assert 0 < len(samples.other.device_ms) <= entry.time_ms.n
    assert entry.speedup["best_same_class"].baseline in ("eager", "eager_fp32")
    assert not entry.measurement and "not a measurement" in whole.timing.clock
    launch_ms = whole.timing.launch_ms
    assert set(launch_ms) == set(whole.samples_ms) and all(0 < ms < 1000 for ms in launch_ms.values())
    assert whole.timing.launches_not_hidden == [], "and nothing waits for launches here"
    assert whole.timing.left_out == {} and whole.timing.inputs == "native, new for every call"


@pytest.mark.slow
def test_a_baseline_that_takes_too_long_to_compile_is_left_out_with_its_reason(judged):
    """max_autotune at every precision that the solutions have: its worker ends with the first that is too slow."""
    options = TIMED.but(modes=("eager", "max_autotune"), compile_timeout_s=0.01)
    rough = right("y = y + 3e-4 * y.roll(1, 2)")
    found, whole = judged({"exact": HONEST, "rough": rough}, options)
    assert {entry.precision_class for entry in found.values()} == {"fp32", "tf32"}, found["rough"].rel_l2
    assert set(whole.timing.left_out) == {"max_autotune_fp32", "max_autotune_tf32"}
    assert "timeout" in whole.timing.left_out["max_autotune_fp32"]
    assert all(entry.time_ms for entry in found.values())


@pytest.mark.slow
def test_a_row_of_nearly_nothing_is_right_where_the_whole_is(judged, monkeypatch):
    """L1_04's row is one element, of which products of both signs leave little now and then: a sum in bf16 is off by
    more than that there, and right by every guard of the trials. Wrong by those it is wrong here too."""
    compare_rows_alone(monkeypatch)
    compare = comparison.Comparison.compare

    def smallest(self, implementation, described, only = None,
                 *, whole = True, bound = None):  # fmt: skip
        if bound is not None and only is not None and not whole:
            row = int(self.expected.outputs(None, self.workers.slots)[0].abs().flatten().argmin())
            only = slice(row, row + 1)
        return compare(self, implementation, described, only, whole=whole, bound=bound)

    monkeypatch.setattr(comparison.Comparison, "compare", smallest)
    sums = (
        "a, b = inputs\n        ModelNew.first = (ModelNew.first or 0) + 1\n"
        "        return (a * b.view(1, -1)).sum(1, keepdim=True) * (1.5 if ModelNew.first > {} else 1)"
    )
    bodies = {"sums": sums.format(1 << 60), "wrong": sums.format(100)}
    found, _ = judged(bodies, LONGER, key="L1_04@bf16")
    assert outcome(found["sums"]) == CORRECT and found["sums"].time_ms.n > 9, found["sums"].reasons
    assert outcome(found["wrong"]) == ("incorrect", "timed_output_wrong"), found["wrong"]
    assert "over the limit" in found["wrong"].reasons[0].detail


# Damages what lies in the slots whenever weights come.
DAMAGES = """
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(in_channels, in_channels, kernel_size, stride, padding, groups=in_channels, bias=bias)
        self.x = None

    def load_state_dict(self, *args, **kwargs):
        if self.x is not None and not self.x.isnan().any():
            self.x[..., ::2] *= 2
        return super().load_state_dict(*args, **kwargs)

    def forward(self, x):
        self.x = x if self.x is None else self.x
        return self.conv2d(x)
"""


def test_baselines_are_classed_on_inputs_that_no_solution_has_seen(tmp_path, smoke_fixture):
    """One that damages those that lie there when it loads its weights leaves no baseline out, and makes none rough."""
    problem, file = smoke_problem("L1_82"), tmp_path / "damages.py"
    file.write_text(DAMAGES)
    found = session.evaluate(problem, smoke_fixture("L1_82"), [("damages", file, "ModelNew")], BRIEF)
    assert found.timing.left_out == {}
    assert found.timing.baseline_classes == {"eager": "fp32", "eager_fp32": "fp32"}


# Its Model writes to its inputs, as one that begins with an activation in place does; solutions must not.
IN_PLACE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x.mul_(2.5)) * x


def get_inputs():
    return [torch.rand(64, 32) - 0.5]


def get_init_inputs():
    return []
"""


def test_a_baseline_that_writes_to_its_inputs_blames_no_solution(tmp_path):
    """The problem's own Model does: no solution is rejected because its baselines do what they are."""
    file = tmp_path / "in_place.py"
    file.write_text(IN_PLACE)
    problem = catalogue.load_file(file)
    solution = wrapped(tmp_path, problem, "clean", "return super().forward(inputs[0].clone())")
    fixture = calibration.build(problem, CPU)
    found = session.evaluate(problem, fixture, [("clean", solution, "ModelNew")], TIMED)
    assert outcome(found.results[0]) == CORRECT, found.results[0].reasons
    assert found.timing.timed_again is None and found.timing.left_out == {}


# Whenever it was stopped for 8 ms a timer wakes it, and it writes to the inputs.
LURKS = """
import ctypes, signal, threading, time
LIBC = ctypes.CDLL(None)

class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int),
                ("left", ctypes.c_char * 48)]

def lurk(x):
    timer = ctypes.c_int()
    LIBC.syscall(222, 1, ctypes.byref(Event(None, signal.SIGCONT, 0, b"")), ctypes.byref(timer))
    last = time.perf_counter()
    while True:
        LIBC.syscall(223, timer, 0, ctypes.byref((ctypes.c_long * 4)(0, 0, 0, 8_000_000)), None)
        now = time.perf_counter()
        if now - last > 0.008:
            while time.perf_counter() < now + 0.004:
                x[..., -1] = 0.5
        last = time.perf_counter()
        time.sleep(0.0005)
"""
LURK = (
    "if ModelNew.first is None:\n    ModelNew.first = threading.Thread(target=lurk, args=(x,), daemon=True)\n"
    "    ModelNew.first.start()"
)


def test_a_solution_that_writes_to_anothers_inputs_is_rejected_alone(judged):
    """Both are right. The one that runs while it is stopped in the other's trials would have it called wrong."""
    bodies = {"lurks": (right(LURK), LURKS), "honest": HONEST}
    found, _ = judged(bodies)
    assert outcome(found["honest"]) == CORRECT, found["honest"].reasons
    # on a busy machine its thread may take its own call for the other's, and write to the inputs of that
    assert outcome(found["lurks"]) in {("rejected", "background_work"), ("incorrect", "input_modified")}, found["lurks"]


@pytest.mark.slow
def test_a_solution_not_seen_at_rest_goes_on_in_a_new_process_once(judged, monkeypatch):
    """A driver or a busy host can hold a thread in a system call. The second time it is rejected, with the reason."""
    rest, run = client.WorkerProcess.rest, Experiment.run
    phase, left = ["trials"], {("unlucky", "trials"): 1, ("unlucky", "timing"): 1, ("liar", "trials"): 99,
                               ("restless", "timing"): 99}  # fmt: skip
    pids = {}

    def held(worker):
        pids.setdefault(worker.name, set()).add(worker.started.pid)
        key = worker.name, phase[0]
        if not worker.stopped or not left.get(key):
            return rest(worker)
        left[key] -= 1
        worker.unrest = "thread 'python' is in state D (futex)"
        return False

    def timing(experiment):
        phase[0] = "timing"
        return run(experiment)

    monkeypatch.setattr(client.WorkerProcess, "rest", held)
    monkeypatch.setattr(Experiment, "run", timing)
    bodies = dict.fromkeys(("unlucky", "liar", "restless", "honest"), HONEST)
    found, whole = judged(bodies, BRIEF)
    assert outcome(found["unlucky"]) == outcome(found["honest"]) == CORRECT and found["unlucky"].time_ms
    assert left["unlucky", "trials"] == left["unlucky", "timing"] == 0 and len(pids["unlucky"]) >= 2
    for name in ("liar", "restless"):
        assert outcome(found[name]) == ("rejected", "background_work")
        assert "is in state D (futex)" in found[name].reasons[0].detail
    assert "keeps running" in whole.timing.timed_again


@pytest.mark.slow
def test_a_launch_that_cannot_be_stopped_is_let_go_and_made_late(judged, monkeypatch):
    """As where the driver waits for an idle GPU. A worker that is not at rest without such a launch is rejected."""
    rest, ready, inside = client.WorkerProcess.rest, timed_call.Launching.ready, []

    def launching(self, implementation, variant, *values, **how):
        inside.append(implementation.name if how["gated"] and variant not in self.late else "")
        return ready(self, implementation, variant, *values, **how)

    monkeypatch.setattr(timed_call.Launching, "ready", launching)
    monkeypatch.setattr(timed_call, "_LAUNCH_S", 0.0)  # nothing is launched in time
    monkeypatch.setattr(client.WorkerProcess, "rest", lambda worker: not (
        worker.stopped and inside and inside.pop() == worker.name == "spills") and rest(worker))  # fmt: skip
    bodies = {"spills": (HONEST, LATE.format(""))}
    found, whole = judged(bodies, BRIEF)
    assert outcome(found["spills"]) == CORRECT and found["spills"].time_ms
    assert "spills" in whole.timing.launched_late and not whole.timing.timed_again


Runs = list[dict[str, int]]


@pytest.fixture
def delayed(monkeypatch):
    """Has measurements find their baselines delayed, which blames the first solution, where `when` says so. It is asked
    with what is also returned: of each measurement so far, the solutions and their processes."""

    def patch(when):
        runs, run = Runs(), Experiment.run

        def held_up(experiment):
            runs.append({s.name: cast(Any, s.worker).started.pid for s in experiment.solutions})
            awake = {s.name for s in experiment.evaluation.workers.solutions if s.worker is not None}
            assert awake == {*runs[-1]}, "a solution that is timed alone has no other beside it"
            found = run(experiment)
            if when(runs):
                experiment.evaluation.workers.end(*experiment.solutions)  # as where the baselines run alone
                raise Blamed(experiment.solutions[0], SolutionRejected(DISTURBED_CODE, "60 % slower"))
            return found

        monkeypatch.setattr(Experiment, "run", held_up)
        return runs

    return patch


def test_timing_beside_delayed_baselines_is_repeated_once(judged, delayed):
    """A busy host may slow them down once, and then the second measurement counts. It has workers of its own."""
    runs = delayed(lambda runs: len(runs) == 1)
    found, whole = judged({"exact": HONEST}, BRIEF)
    assert len({run["exact"] for run in runs}) == 2
    assert outcome(found["exact"]) == CORRECT and found["exact"].time_ms
    assert whole.timing.timed_again == "60 % slower"


def test_each_measurement_is_repeated_once(judged, delayed):
    """Held up thrice: the first of two solutions is blamed for the second time, the other one has a second one too."""
    runs = delayed(lambda runs: len(runs) <= 3)
    found, _ = judged({"a": HONEST, "b": HONEST}, BRIEF)
    assert [*map(len, runs)] == [2, 2, 1, 1]
    assert (found["a"].verdict, found["b"].verdict) == ("rejected", "correct") and found["b"].time_ms
    assert [reason.code for reason in found["a"].reasons] == [DISTURBED_CODE] and found["a"].time_ms is None


@pytest.mark.slow
def test_of_several_solutions_the_one_that_delays_baselines_is_found(judged, delayed):
    """Held up twice beside all, each is timed alone: the one that does it is rejected, and the others' time counts
    that was measured together, without it."""
    runs = delayed(lambda runs: "second" in runs[-1])
    everyone = ("first", "second", "third")
    found, whole = judged(dict.fromkeys(everyone, HONEST), BRIEF)
    assert outcome(found["second"]) == ("rejected", DISTURBED_CODE) and found["second"].time_ms is None
    assert outcome(found["first"]) == outcome(found["third"]) == CORRECT
    assert [*map(tuple, runs)] == [everyone, everyone, ("first",), ("second",), ("third",), ("first", "third")]
    assert found["first"].time_ms and found["third"].time_ms
    told = [(each.solution, each.code) for each in whole.timing.discarded]
    each_alone = [("first", "alone"), ("second", DISTURBED_CODE), ("third", "alone")]
    assert told == [("first", DISTURBED_CODE)] * 2 + each_alone


@pytest.mark.slow
def test_delaying_baselines_only_beside_others_gains_nothing(judged, delayed):
    """None does it alone, and together they do: then the first is blamed, and it ends."""
    runs = delayed(lambda runs: len(runs[-1]) > 1)
    found, _ = judged({"a": HONEST, "b": HONEST}, BRIEF)
    assert [*map(len, runs)] == [2, 2, 1, 1, 2, 1]
    assert outcome(found["a"]) == ("rejected", DISTURBED_CODE) and outcome(found["b"]) == CORRECT


@pytest.mark.slow
def test_slightly_disagreeing_clocks_are_measured_in_another_process(judged, monkeypatch):
    """Once, and all at once: the second measurement knows of the first. The others' processes go on."""
    run, pids = Experiment.run, []
    little = {"seal": sampling.Excess(0.2, 0.15, "{:.3g} ms")}
    seen = []

    def off(experiment):
        found = run(experiment)
        seen.append(dict(experiment.before))
        pids.append({s.name: cast(Any, s.worker).started.pid for s in experiment.solutions})
        doubted = [s for s in experiment.solutions if s.name.startswith("unlucky") and len(seen) == 1]
        if doubted:
            first, more = (Blamed(s, SolutionRejected("clocks_disagree", "0.2 ms"), little) for s in doubted)
            first.also = [more]
            raise first
        for implementation in experiment.solutions:
            if implementation.name == "liar":
                again = little if implementation.name not in experiment.before else None
                raise Blamed(implementation, SolutionRejected("clocks_disagree", f"{len(seen)}"), again)
        return found

    monkeypatch.setattr(Experiment, "run", off)
    bodies = dict.fromkeys(("unlucky", "unlucky too", "liar", "honest"), HONEST)
    found, whole = judged(bodies, BRIEF)
    assert {outcome(found[name]) for name in ("unlucky", "unlucky too", "honest")} == {CORRECT}
    assert found["unlucky"].time_ms and found["unlucky too"].time_ms
    assert outcome(found["liar"]) == ("rejected", "clocks_disagree") and found["liar"].reasons[0].detail == "3"
    both = ["unlucky", "unlucky too"]
    assert list(map(sorted, seen)) == [[], both, ["liar", *both], ["liar", *both]]
    assert whole.timing.timed_again == "0.2 ms; 0.2 ms; 2"
    kept = whole.timing.discarded
    told = [(each.solution, each.detail) for each in kept]
    assert told == [("unlucky", "0.2 ms"), ("liar", "2"), ("liar", "3")]
    assert all(each.samples_ms[name].gated.wall_ms for each in kept for name in ("eager", each.solution))
    assert all(pids[0][name] != pids[1][name] == pids[3][name] for name in both) and pids[1]["liar"] != pids[2]["liar"]
    assert len({each["honest"] for each in pids}) == 1


def test_solutions_whose_clocks_disagree_slightly_are_found_together():
    """One after another each would cost a whole measurement. One that is far off is rejected first."""
    calm, little, far = ([Sample(2.0, 2.0, 2.1 + ms, 0.0)] * 20 for ms in (0.0, 0.2, 2.0))
    experiment = object.__new__(Experiment)
    experiment.before, experiment.launching = {}, SimpleNamespace(late=set())
    experiment.idle, experiment.baselines = SimpleNamespace(held_up=lambda *_: ""), []
    experiment.classes = {}

    def blamed(**gated):
        experiment.solutions = [Implementation(name, Path("s.py"), "M", [name]) for name in gated]
        with pytest.raises(Blamed) as found:
            experiment._decide({name: Series(each) for name, each in gated.items()}, [Series(calm)])
        return found.value

    found = blamed(a=little, b=calm, c=little)
    assert [each.implementation.name for each in (found, *found.also)] == ["a", "c"]
    assert all(each.marginal for each in (found, *found.also))
    found = blamed(a=little, b=far, c=little)
    assert found.implementation.name == "b" and found.marginal is None and not found.also


def test_a_baseline_that_was_slower_beside_it_makes_no_solution_fast(smoke_fixture):
    """Where it is not rejected for that the host was slower: what the slowdown explains is not confirmed."""
    solution = Implementation("s", None, "M", ["s"], distances={"native": [{"rel_l2": 0.0, "max": 0.0, "row": 0.0}]})
    told = verdict.Judged("correct", [], "fp32", 0.0)
    times = {name: Series(gated=[Sample(ms, ms, ms + 1, 0.5)] * 20) for name, ms in (("eager", 13.0), ("s", 10.0))}
    facts = {"baseline_classes": {"eager": "fp32"}, "status": "converged"}
    problem = smoke_problem()
    words = [
        verdict.result(problem, solution, told, times, Timing(**facts, alone={"eager": ratio}), None, "audited")
        for ratio in (1.01, 1.6)
    ]
    assert [entry.speedup["eager"].word for entry in words] == ["FAST", "UNCONFIRMED"]
    assert ["baselines_slower_beside_it" in entry.labels for entry in words] == [False, True]


class Alone:
    """An experiment at its end: for each baseline its device time, ms, and whether its launches were hidden, beside the
    solution and alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **variants: tuple[tuple[float, bool], tuple[float, bool]]):
        experiment = object.__new__(Experiment)
        experiment.cuda, experiment.control, experiment.clock = True, None, Clock()
        experiment.evaluation = SimpleNamespace(workers=SimpleNamespace(end=lambda *_: None))
        experiment.options = Options()
        self.solution = Implementation("s", Path("s.py"), "M", ["s"])
        experiment.baselines, experiment.solutions = (
            [Implementation("baseline", None, "M", [*variants])],
            [self.solution],
        )
        experiment.idle = Idle(torch.device("cpu"), watched=True)
        self.experiment, self.beside = experiment, {name: series(*beside) for name, (beside, _) in variants.items()}
        self.alone = {name: series(*alone) for name, (_, alone) in variants.items()}
        self.runners = [Runner(name, cast(Any, None)) for name in variants]
        self.flushes = 0.08, 0.08  # the first after the baselines' inputs, beside and alone
        monkeypatch.setattr(sampling, "measure", self.measure)

    def measure(self, runners: list[Runner], *_, **__) -> tuple[dict[str, Series], str]:
        self.experiment.idle.first_ms = dict.fromkeys(self.alone, [self.flushes[1]] * 6)
        return {runner.name: self.alone[runner.name] for runner in runners}, "converged"

    def blamed(self) -> str:
        """Which solution it blames, and the reason."""
        self.experiment.solutions = [self.solution]
        self.experiment.idle.first_ms = dict.fromkeys(self.alone, [self.flushes[0]] * 6)
        try:
            self.experiment._alone(self.runners, self.beside)
        except Blamed as blamed:
            assert blamed.implementation is self.solution and self.experiment.solutions == [self.solution]
            return blamed.error.code
        return ""


def series(device_ms: float, hidden: bool) -> Series:
    return Series(gated=[Sample(device_ms, device_ms, device_ms + 1, 0.0, hidden=hidden)] * 6)


def test_variants_with_hidden_launches_decide_whether_baselines_were_delayed(monkeypatch):
    """A model that waits for its own results cannot be launched ahead: on a busy host its times are the host's. Where
    that holds for every baseline, all tell."""
    slow, quick, even, late_slow, late_quick = (1.6, True), (1.0, True), (1.04, True), (1.6, False), (1.0, False)
    assert Alone(monkeypatch, eager=(slow, quick), compile=(slow, quick)).blamed() == DISTURBED_CODE
    assert Alone(monkeypatch, eager=(even, quick)).blamed() == ""
    assert Alone(monkeypatch, eager=(late_slow, late_quick), reduce_overhead=(quick, quick)).blamed() == ""
    held_up = Alone(monkeypatch, eager=(late_slow, late_quick), reduce_overhead=(slow, quick))
    assert held_up.blamed() == DISTURBED_CODE
    assert Alone(monkeypatch, eager=(late_slow, late_quick)).blamed() == DISTURBED_CODE, "nothing else tells"


def test_baselines_with_delayed_flushes_are_no_measure(monkeypatch):
    experiment = Alone(monkeypatch, eager=((1.0, True), (1.0, True)))
    assert experiment.blamed() == ""
    experiment.flushes = 0.5, 0.08
    assert experiment.blamed() == DISTURBED_CODE


# -- the quick way

MIXED = {
    "honest": HONEST,
    "zeros": right("y = torch.zeros_like(y)"),
    "raises": right("raise ValueError('no')"),
    "banned": (right("sys._getframe()"), "import sys\n"),
    "wrong shape": right("y = y[:1].clone()"),
    "modifies": right("x.zero_()"),
}


@pytest.mark.slow
def test_dev_has_no_separation_and_the_same_verdicts(judged, tmp_path, monkeypatch):
    """In the judge's own process, for an inner loop; twice, and what the first time left does not matter to the second.
    It leaves no folder behind."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    audited, _ = judged(MIXED)
    dev = VERDICTS.but(trust="dev")
    first, _ = judged(MIXED, dev)
    second, _ = judged(MIXED, dev)
    assert outcomes(audited) == {
        "honest": CORRECT, "zeros": ("incorrect", "rel_l2"), "raises": ("error", "exception"),
        "banned": ("rejected", "banned"), "wrong shape": ("incorrect", "wrong_shape"),
        "modifies": ("incorrect", "input_modified"),
    }  # fmt: skip
    for found in (first, second):
        assert outcomes(found) == outcomes(audited)
        assert {(entry.trust, entry.separation) for entry in found.values()} == {("dev", "none")}
    assert {entry.trust for entry in audited.values()} == {"audited"}
    assert first["honest"].distances.keys() == audited["honest"].distances.keys()
    assert not list((tmp_path / "tmp").iterdir())


def test_dev_times_beside_eager_in_one_process(judged):
    found, whole = judged({"honest": HONEST}, TIMED.but(trust="dev"))
    assert outcome(found["honest"]) == CORRECT and found["honest"].time_ms.n > 0
    assert set(whole.baselines) == {"eager", "eager_fp32"}


def test_evaluations_follow_each_other_in_one_process(judged):
    """As the jobs of a self-test do: new workers, new buffers, other secrets; nothing of the one before is left."""
    launcher = launch.current()
    launcher.start_forkserver("cpu")
    before = launch.descendants(os.getpid())
    files = len(os.listdir("/proc/self/fd"))
    seeds = []
    for _ in range(2):
        found, whole = judged({"honest": HONEST, "zeros": MIXED["zeros"]})
        assert outcome(found["honest"]) == CORRECT and found["zeros"].verdict == "incorrect"
        assert not launcher.workers() and launch.descendants(os.getpid()) == before
        seeds += [trial.seed for trial in whole.trials]
    assert len(set(seeds)) == len(seeds)
    assert len(os.listdir("/proc/self/fd")) <= files + 1, "descriptors of an evaluation outlive it"
