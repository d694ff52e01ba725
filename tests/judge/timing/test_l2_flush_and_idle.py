"""The GPU before a timed call: rests, inputs that are made again, first flushes that show another process on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from repro import config
from repro.judge.timing import l2_flush_and_idle as module
from repro.judge.timing.l2_flush_and_idle import BUSY_TRIES, PATIENCE, Idle

QUIET, BUSY = 0.08, 3.0


class Scripted(Idle):
    """Whose flushes take what a test says, milliseconds; the last goes on."""

    def __init__(self, *, watched: bool = True):
        super().__init__(torch.device("cuda"), watched=watched)
        self.quiet_ms = QUIET
        self.takes = []
        self.done = []

    def flush_ms(self) -> float:
        self.done.append("flush")
        return self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]

    def call(self, name: str, *takes: float, waiting: bool = False) -> float | None:
        self.takes = list(takes)
        return self.ready(name, lambda: self.done.append("fill"), 0.01, trusted=name == "eager", waiting=waiting)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="0"))
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    yield


def test_inputs_on_a_quiet_gpu_are_made_once_and_flushed_after(no_gpu):
    idle = Scripted()
    assert idle.call("a", QUIET) == 0.0 and idle.done == ["fill", "flush"]
    assert idle.first_ms == {"a": [QUIET]} and idle.again == 0


def test_inputs_made_while_the_gpu_was_busy_are_made_again(no_gpu):
    """A kernel that waited for them may have its answer; its inputs are never asked for."""
    idle = Scripted()
    assert idle.call("a", BUSY, BUSY, QUIET + 0.1) == pytest.approx(0.1)
    assert idle.done == ["fill", "flush"] * 3, "no call has inputs that lay there while it was busy"
    assert idle.first_ms == {"a": [BUSY]} and idle.again == 2


def test_a_gpu_that_stays_busy_is_reported(no_gpu):
    idle = Scripted()
    assert idle.call("a", BUSY) is None and idle.done.count("fill") == BUSY_TRIES


def test_short_work_after_new_inputs_counts_in_the_calls_time(no_gpu):
    """Not busy enough to be refused, and in too few calls to be a habit: it buys nothing either."""
    idle = Scripted()
    assert idle.call("a", QUIET + 0.4) == pytest.approx(0.4)
    assert idle.done.count("fill") == PATIENCE + 1
    assert idle.call("a", QUIET + 0.4, QUIET) == 0.0, "it was done once, with inputs that are never asked for"


def test_a_host_that_became_slower_costs_a_solution_nothing(no_gpu):
    """What a flush takes is what it takes now, for the baselines; a busy moment of theirs is no habit."""
    idle = Scripted()
    for _ in range(8):
        idle.call("eager", QUIET)
    idle.call("eager", BUSY, QUIET)
    assert idle.call("a", QUIET + 0.3) == pytest.approx(0.3)
    for _ in range(15):
        idle.call("eager", QUIET + 0.3)
    idle.done.clear()
    assert idle.call("a", QUIET + 0.32) == pytest.approx(0.02) and idle.done == ["fill", "flush"]


def test_a_call_that_waits_may_itself_be_what_keeps_the_gpu_busy(no_gpu):
    """It is not tried for as long, for it may be launched once more; and where most do so, it shows."""
    idle = Scripted()
    assert idle.call("a", BUSY, waiting=True) is None and idle.done.count("fill") == PATIENCE + 1
    assert idle.call("a", BUSY, QUIET, waiting=True) == 0.0 and not idle.crowded("a"), "two calls are no habit"
    assert idle.call("a", BUSY, QUIET, waiting=True) == 0.0 and idle.crowded("a")
    idle.forget("a")
    assert not idle.crowded("a") and idle.held_up("a", ["eager"]) == ""
    for takes in ((BUSY, QUIET), (QUIET,)) * 4:
        assert idle.call("b", *takes, waiting=True) == 0.0
    assert not idle.crowded("b"), "half of them are a busy host's"


def test_unwatched_it_is_flushed_and_that_is_all(no_gpu):
    idle = Scripted(watched=False)
    assert idle.call("a", BUSY) == 0.0 and idle.done == ["fill", "flush"]


def test_on_the_cpu_inputs_are_made_and_that_is_all():
    idle, filled = Idle(torch.device("cpu"), watched=True), []
    assert idle.ready("a", lambda: filled.append(1), 1.0, trusted=False) == 0.0 and filled == [1]
    assert idle.held_up("a", ["b"]) == "" and idle.limit.rests == 0


def test_the_gpu_rests_before_there_are_inputs_to_compute_from(no_gpu, monkeypatch):
    idle = Scripted()
    monkeypatch.setattr(idle.limit, "rest", lambda busy_s: idle.done.append(f"rest {busy_s}"))
    assert idle.call("a", QUIET) == 0.0 and idle.done == ["rest 0.01", "fill", "flush"]


@pytest.mark.parametrize(
    ("mine_ms", "others_ms", "told"),
    [
        (0.08, 0.08, False),
        (0.20, 0.08, False),  # under the slack of the clocks
        (0.38, 0.08, True),  # a kernel of 0.3 ms that waited for the inputs: too short to have them made again
        (0.50, 0.40, False),  # a slow host is slow for all
        (0.70, 0.40, True),
    ],
)
def test_a_kernel_that_waits_for_inputs_delays_the_first_flushes(no_gpu, mine_ms, others_ms, told):
    idle = Scripted()
    for call in range(20):
        idle.call("eager", others_ms)
        idle.call("compile", others_ms * 0.9)
        idle.call("mine", mine_ms if call % 5 else others_ms)
    assert bool(idle.held_up("mine", ["eager", "compile"])) is told
    assert idle.held_up("eager", ["compile"]) == "" and idle.held_up("mine", []) == "", "nothing to compare with"
    idle.call("new", BUSY)
    assert idle.held_up("new", ["eager"]) == "", "one flush is no habit"


@pytest.mark.parametrize(("beside_ms", "told"), [(0.08, False), (0.35, False), (0.5, True)])
def test_delayed_baselines_are_found_after_the_solution_ended(no_gpu, beside_ms, told):
    """Otherwise a kernel left for every call, theirs too, would be the usual thing."""
    idle = Scripted()
    for _ in range(10):
        idle.call("eager", beside_ms)
        idle.call("mine", beside_ms)
    assert idle.held_up("mine", ["eager"]) == ""
    idle.alone()
    assert idle.masked(["eager"]) == "", "nothing to compare with yet"
    for _ in range(10):
        idle.call("eager", QUIET)
    assert bool(idle.masked(["eager"])) is told


# -- the power limit

RESTED = """
import json, os, sys, time
from repro.judge.timing.l2_flush_and_idle import PowerLimit
limit, begin = PowerLimit("11111111-2222-3333-4444-555555555555" if sys.argv[1] == "cuda" else None), time.monotonic()
now = os.environ.get("FAKE_NVML_REASONS", "")
for reasons, busy_s in (("0x0", 1.0), (now, 0.0), (now, 0.02), ("0x0", 10.0)):
    os.environ["FAKE_NVML_REASONS"] = reasons
    limit.rest(busy_s)
print(json.dumps(limit.record().to_json() | {"passed_s": time.monotonic() - begin}))
"""


@pytest.mark.parametrize(
    ("device", "settings_", "rests"),
    [
        ("cuda", {"FAKE_NVML_REASONS": "0x4"}, 3),
        pytest.param("cuda", {"FAKE_NVML_REASONS": "0x1"}, 0, marks=pytest.mark.slow),
        pytest.param("cuda", {"FAKE_NVML_REASONS": "0x5"}, 3, marks=pytest.mark.slow),
        # a fault, not a limit that a rest keeps away from
        pytest.param("cuda", {"FAKE_NVML_REASONS": "0x48"}, 0, marks=pytest.mark.slow),
        pytest.param("cuda", {"FAKE_NVML_DRIVER": "none"}, 0, marks=pytest.mark.slow),
        pytest.param("cpu", {"FAKE_NVML_REASONS": "0x4"}, 0, marks=pytest.mark.slow),
    ],
)
def test_a_timed_call_waits_where_the_power_limit_holds_the_clocks_down(fake_gpu, device, settings_, rests):
    """Twice as long as the GPU was busy, a quarter of a second at most, and from then on: the rest makes the limit let
    go. Nowhere else, nor where NVML is silent."""
    environment = os.environ | {"PYTHONPATH": str(config.ROOT)} | fake_gpu | settings_
    command = [sys.executable, "-c", RESTED, device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["rests"] == rests and found["rested_s"] == (0.29 if rests else 0.0)
    assert found["passed_s"] >= found["rested_s"]
