"""`repro doctor` as a user starts it: what it sees, what it advises, and when it says no."""

import fcntl
import json

LOCAL = ("doctor", "--engine", "local")
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def examined(tool, *args, code=0, **env):
    """The checks by name of one examination."""
    run = tool if "LD_LIBRARY_PATH" in env else tool.within  # which is read when a process starts
    done = run(*args, "--json", "doctor.json", **env)
    assert done.code == code, done.out + done.err
    report = json.loads((tool.folder / "doctor.json").read_text())
    assert report["ready"] == (code == 0)
    checks = {check["check"]: check for check in report["checks"]}
    for check in checks.values():
        assert check["seen"] and bool(check["remedy"]) == (check["status"] in ("warn", "fail")), check
        sign = {"ok": "✓", "warn": "!", "fail": "✗", "skip": "–"}[check["status"]]
        assert f"{sign}  {check['check']}" in done.out
    failed = [name for name, check in checks.items() if check["status"] == "fail"]
    assert not failed or done.out.splitlines()[-1] == f"not ready: {', '.join(failed)}"
    return checks


def test_without_a_gpu_the_default_use_works_and_the_checks_say_so(tool):
    checks = examined(tool, *LOCAL)
    assert checks["gpu"]["status"] == checks["driver"]["status"] == "warn"
    assert "--device cpu" in checks["gpu"]["remedy"]
    assert checks["gpu state"]["seen"] == "no GPU here"
    assert {checks[name]["status"] for name in ("python", "results folder", "compiler")} == {"ok"}


def test_a_gpu_that_is_asked_for_and_missing_is_a_failure(tool):
    checks = examined(tool, *LOCAL, "--device", "cuda", code=1)
    assert checks["driver"]["status"] == checks["gpu"]["status"] == "fail"
    assert "error 12" in checks["driver"]["seen"]
    assert examined(tool, *LOCAL, "--device", "cpu")["gpu"] == {
        "check": "gpu", "status": "skip", "seen": "device cpu", "remedy": "",
    }  # fmt: skip


def test_a_healthy_gpu_passes(tool, fake_gpu):
    checks = examined(tool, *LOCAL, "--device", "cuda", **fake_gpu)
    names = ("driver", "gpu", "gpu state", "lease")
    assert {name: checks[name]["status"] for name in names} == dict.fromkeys(names, "ok")
    assert "NVIDIA Fake, 150 GiB, sm 9.0" in checks["gpu"]["seen"]


def test_doubtful_gpu_states_are_warnings(tool, fake_gpu):
    busy = {"FAKE_NVML_USED": str(9 << 30), "FAKE_NVML_PROCESSES": "2", "FAKE_NVML_REASONS": "0x48"}
    slowed = "GPU 0: 9.0 GiB used, 2 compute processes, slowed while idle by hw_slowdown, hw_thermal"
    for doubtful, name, seen in (
        (busy, "gpu state", slowed),
        ({"FAKE_NVML_REASONS": "0x2"}, "gpu state", "GPU 0: its clocks are set by hand"),
        ({"FAKE_NVML_DRIVER": "none"}, "driver", "error 9"),
    ):
        found = examined(tool, *LOCAL, **fake_gpu, **doubtful)[name]
        assert found["status"] == "warn" and seen in found["seen"], found


def test_a_gpu_that_another_run_holds(tool, fake_gpu):
    lock = tool.tmp / "state" / f"gpu-{UUID}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert examined(tool, *LOCAL, **fake_gpu)["lease"]["status"] == "warn"


def test_a_compiler_that_makes_nothing_matters_where_kernels_are_compiled(tool, fake_gpu):
    found = examined(tool, *LOCAL, CC="/bin/false")["compiler"]
    assert found["status"] == "warn" and "cannot make a shared object" in found["seen"]
    found = examined(tool, *LOCAL, CC="/no/such/compiler", code=1, **fake_gpu)["compiler"]
    assert found["status"] == "fail" and "does not run" in found["seen"]


def test_an_engine_that_does_not_answer(tool):
    nowhere = {"DOCKER_HOST": "unix:///no/such/socket"}
    found = examined(tool, "doctor", "--engine", "docker", code=1, **nowhere)
    assert found["engine"]["status"] == "fail" and "/no/such/socket" in found["engine"]["seen"]
    assert found["pins"]["status"] == "skip"
    found = examined(tool, "doctor", **nowhere)
    assert found["engine"]["status"] == "warn" and found["pins"]["status"] != "skip"


def test_results_that_cannot_be_written(tool):
    (tool.folder / "file").touch()
    found = examined(tool, *LOCAL, "--results", "file/below", code=1)
    assert found["results folder"]["status"] == "fail"
