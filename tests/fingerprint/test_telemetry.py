"""The sampler and the snapshots: what they see of a GPU, what they cost, and that they never outlive or fail a job."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import alive, until

from repro import config
from repro.bundle import verify
from repro.bundle.write import Bundle
from repro.fingerprint import series
from repro.records.job import Job, Outcome
from repro.records.row import Planned
from repro.runs.rows import Row, keep

OBSERVE = """
import json, os, sys, time
from repro.fingerprint.telemetry import Telemetry
observed = Telemetry("cuda")
print(observed._process.pid if observed._process else 0, flush=True)
def sampled():
    # on a busy machine the sampler may start late and pause
    if observed._process:
        size, deadline = os.fstat(observed._file).st_size, time.monotonic() + 60
        while os.fstat(observed._file).st_size == size and observed._process.poll() is None:
            assert time.monotonic() < deadline, "no sample within 60 s"
            time.sleep(0.01)
sampled()
print("sampled", flush=True)
time.sleep(0.4)
observed.mark("warm")
time.sleep(float(sys.argv[1])) if sys.argv[1] != "told" else sys.stdin.readline()
sampled()
observed.mark("timed")
print(json.dumps(observed.end()))
"""


def start(fake_gpu, seconds=0.6, **env):
    command = [sys.executable, "-c", OBSERVE, str(seconds)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(config.ROOT)} | fake_gpu | env
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, cwd="/", **pipes)


def observed(fake_gpu, seconds=0.6, **env):
    with start(fake_gpu, seconds, **env) as process:
        pid, _, told = process.stdout.read().strip().split("\n")
    return int(pid), json.loads(told)


def test_a_window_has_its_clocks_reasons_and_counters(fake_gpu):
    pid, found = observed(fake_gpu, REPRO_SAMPLE_MS="20")
    until(lambda: not alive(pid))
    assert list(found["dynamic"]) == ["before", "warm", "timed", "after"]
    assert found["dynamic"]["warm"]["sm_mhz"]["class"] == "D"
    telemetry = found["telemetry"]
    assert telemetry["sampler"]["status"] == "ok" and telemetry["sampler"]["period_ms"] == 20
    assert [mark["name"] for mark in telemetry["marks"]] == ["before", "warm", "timed", "after"]
    timing = telemetry["windows"]["timing"]
    assert timing["samples"] <= timing["seconds"] / 0.02 + 2 and timing["seconds"] > 0.4
    assert 1500 <= timing["sm_mhz"]["min"] <= timing["sm_mhz"]["median"] <= timing["sm_mhz"]["max"] < 1900
    assert timing["reasons"] == {"sw_power_cap": 1.0}
    assert 0.5 < timing["deltas"]["energy_mj"] / 350 / (1000 * timing["seconds"]) < 2  # 350 W
    assert timing["deltas"]["violation_power_ns"] > 0 and timing["deltas"]["violation_thermal_ns"] == 0
    columns = telemetry["series"]["columns"]
    assert set(map(len, columns.values())) == {telemetry["sampler"]["samples"]}
    assert columns["t_ms"] == sorted(columns["t_ms"]) and columns["t_ms"][-1] < telemetry["marks"][-1]["t_ms"] + 5


@pytest.mark.parametrize("setting", ["REASONS=4", "REASONS=0x24", "TEMPERATURE=61", "DRIVER=none"])
def test_only_a_gpu_that_is_neither_warm_nor_throttled_is_cool(fake_gpu, setting):
    look = "from repro.fingerprint import gpu; print(gpu.cool(''))"
    command = ["env", f"FAKE_NVML_{setting}", sys.executable, "-c", look]
    assert subprocess.check_output(command, env=os.environ | fake_gpu, cwd=config.ROOT) == b"%a\n" % (
        setting == "REASONS=4"
    )


@pytest.mark.clock
def test_it_samples_at_its_period(fake_gpu):
    _, found = observed(fake_gpu, REPRO_SAMPLE_MS="20")
    timing = found["telemetry"]["windows"]["timing"]
    assert 15 <= timing["samples"] <= 40 and 0.4 < timing["seconds"] < 0.8


def test_it_can_be_switched_off_and_costs_nothing_then(fake_gpu):
    pid, found = observed(fake_gpu, 0, REPRO_SAMPLE_MS="0")
    assert pid == 0 and "series" not in found["telemetry"]
    assert found["telemetry"]["sampler"]["status"] == "off: REPRO_SAMPLE_MS is 0"
    assert found["telemetry"]["windows"]["timing"]["deltas"]["energy_mj"] >= 0
    _, found = observed(fake_gpu, 0, REPRO_SAMPLE_MS="often")
    assert found["telemetry"]["sampler"]["status"].startswith("failed: REPRO_SAMPLE_MS is 'often'")


def test_the_sampler_ends_with_a_judge_that_is_killed(fake_gpu):
    with start(fake_gpu, 30) as process:
        pid = int(process.stdout.readline())
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not alive(pid))


def test_a_sampler_that_is_killed_leaves_what_it_saw(fake_gpu):
    begin = time.monotonic()
    with start(fake_gpu, "told") as process:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "sampled\n"
        os.kill(pid, signal.SIGKILL)
        lived_s = time.monotonic() - begin
        found = json.loads(process.communicate("\n")[0])["telemetry"]
    assert found["sampler"]["status"] == "ended early, exit code -9"
    assert 0 < found["sampler"]["samples"] <= lived_s / 0.05 + 1 and found["windows"]["timing"]["samples"] >= 0


@pytest.mark.slow
def test_it_takes_less_than_a_hundredth_of_one_processor(fake_gpu):
    """Of the library here, which answers at once; what a driver adds is measured on a GPU."""
    with start(fake_gpu, "told") as process:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "sampled\n", "Python and the binding are loaded"

        def ticks():
            facts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(facts[11]) + int(facts[12]), int(facts[16])

        before, nice = ticks()
        time.sleep(3)
        after, _ = ticks()
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        process.kill()
    assert nice == 19
    assert (after - before) / os.sysconf("SC_CLK_TCK") <= 0.01 * 3 + 0.01
    assert resident < 64 << 20


def test_lines_that_are_none_are_left_out():
    text = '{"columns": ["t_us", "sm_mhz", "reasons"], "missing": {"power_mw": "not_supported"}}\n'
    found = series.parse(text + "1000000,1500,4\nrubbish\n2000000,-1,64\n3000000,15")
    assert found.columns == {"t_s": [1.0, 2.0], "sm_mhz": [1500, -1], "reasons": [4, 64]}
    told = series.summary(found)
    assert told["sm_mhz"] == {"min": 1500.0, "median": 1500.0, "max": 1500.0}
    assert told["reasons"] == {"hw_thermal": 0.5, "sw_power_cap": 0.5}
    assert series.parse("").missing["sampler"].startswith("it wrote no header")


def test_a_period_that_is_none_is_wrong_use(monkeypatch):
    for told in ("5", "-1", "x"):
        monkeypatch.setenv("REPRO_SAMPLE_MS", told)
        with pytest.raises(ValueError, match="REPRO_SAMPLE_MS"):
            config.sample_ms()
    monkeypatch.delenv("REPRO_SAMPLE_MS")
    assert config.sample_ms() == 50


def test_the_series_is_a_file_of_the_bundle_and_the_row_names_it(tmp_path):
    bundle = Bundle.create(tmp_path, "evaluate", ["a/b", "c"], {})
    columns = {"schema_version": 1, "columns": {"t_ms": [0, 50], "sm_mhz": [1500, 1600]}, "missing": {}}
    result = {"telemetry": {"sampler": {"samples": 2}, "series": columns}}
    for name in ("a/b", "c"):
        row = Row(Planned(row=name), Job(name, "evaluate"))
        keep(bundle, row, Outcome(name, "done", dict(result)))
    bundle.finish("complete")
    told = bundle.rows["a/b"]["result"]["telemetry"]
    assert told["sampler"] == {"samples": 2} and "series" not in told and told["file"].startswith("telemetry/a_b-")
    assert json.loads((bundle.path / told["file"]).read_text()) == columns
    assert told["file"] in bundle.manifest["files"] and "series" in result["telemetry"]
    assert not {"hashes", "no foreign files", "bundle id"} & verify.verify(bundle.path).failed.keys()
