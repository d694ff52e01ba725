"""What fingerprint, snapshots and sampler say of a real GPU, and that sampling does not change what is timed.

`make test-gpu ARGS="tests/gpu/test_gpu_fingerprint.py -s"` prints what NVML does not report here, and what sampling
costs.
"""

import json
import statistics
import time

import pytest

from repro import fingerprint
from repro.doctor import CHECKS, Setting, examine
from repro.fingerprint import classes, gpu
from repro.fingerprint.telemetry import Telemetry

pytestmark = pytest.mark.gpu

COPY_BYTES, CALLS, ROUNDS = 512 << 20, 400, 10
# What any data-centre GPU tells; the rest depends on driver, board and container, and each says why it is missing.
TOLD = ("gpu_name", "architecture", "compute_capability", "memory_total_bytes", "memory_bus_bits", "max_sm_mhz",
        "max_memory_mhz", "bandwidth_signature_gb_s", "power_limit_w", "driver", "gpu_uuid_hash",
        "sm_mhz", "power_w", "energy_mj", "clock_event_reasons", "temperature_c", "memory_used_bytes",
        "l2_cache_size", "ptxas_version")  # fmt: skip
COST = 0.01


def copies(calls=CALLS):
    """Median ms of a copy, by CUDA events around each."""
    import torch

    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for begin, end in events:
        begin.record()
        target.copy_(source)
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def test_a_real_gpu_reports_its_identity():
    found = fingerprint.collect("cuda")
    values = found["values"]
    missing = {name: value["status"] for name, value in values.items() if value["status"] != "ok"}
    print("\nnot told: " + json.dumps(missing, indent=1))
    assert values.keys() == classes.CLASS.keys()
    assert [name for name in TOLD if name in missing] == []
    assert [name for name, status in missing.items() if status.startswith("failed")] == []
    again = fingerprint.collect("cuda")
    assert (again["sku_id"], again["fingerprint_id"]) == (found["sku_id"], found["fingerprint_id"])
    import torch

    uuid = str(torch.cuda.get_device_properties(0).uuid).lower().removeprefix("gpu-")
    assert uuid not in json.dumps(found).lower() and len(values["gpu_uuid_hash"]["value"]) == 12


def test_the_sampler_sees_work():
    observed = Telemetry("cuda")
    time.sleep(1.5)  # until it runs
    observed.mark("warm")
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        copies(100)
    observed.mark("timed")
    telemetry = observed.end()["telemetry"]
    print("\n" + json.dumps({k: v for k, v in telemetry.items() if k != "series"}, indent=1))
    timing = telemetry["windows"]["timing"]
    assert telemetry["sampler"]["status"] == "ok" and telemetry["sampler"]["missing"] == {}
    assert timing["samples"] > 0.8 * timing["seconds"] * 1000 / telemetry["sampler"]["period_ms"]
    assert timing["deltas"]["energy_mj"] > 0 and timing["power_w"]["median"] > 0
    assert all(name in gpu.REASONS.values() or name.startswith("0x") for name in timing["reasons"])


def test_sampling_costs_less_than_a_hundredth(monkeypatch):
    """Rounds with and without a sampler in turn, so that a drift of the clocks is in both."""
    copies()
    found = {"on": [], "off": []}
    for _ in range(ROUNDS):
        for name, period in (("on", "50"), ("off", "0")):
            monkeypatch.setenv("REPRO_SAMPLE_MS", period)
            observed = Telemetry("cuda")
            time.sleep(1.0)
            found[name].append(copies())
            assert observed.end()["telemetry"]["sampler"]["status"].startswith("ok" if name == "on" else "off")
    on, off = (statistics.median(found[name]) for name in ("on", "off"))
    print(f"\ncopy of {COPY_BYTES >> 20} MiB: {on:.5f} ms sampled, {off:.5f} ms not, ratio {on / off:.5f}")
    assert abs(on / off - 1) < COST


def test_the_doctor_looks_at_a_real_gpu():
    report = examine(Setting("local", "cuda"))
    print("\n" + json.dumps(report["checks"], indent=1))
    assert [check["check"] for check in report["checks"]] == list(CHECKS)
    assert not [check for check in report["checks"] if "the check itself failed" in check["seen"]]
    assert {c["check"]: c["status"] for c in report["checks"]}["driver"] in ("ok", "warn")
