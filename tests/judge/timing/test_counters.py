"""`repro benchmark --profile`: what ncu prints becomes counters and totals, and whatever keeps it from that a state.

No machine of these tests has a GPU or ncu. A program of that name, first on the PATH, prints what ncu prints; where it
is asked to, it also runs its command, as ncu does: a kernel in the process that is to be profiled, on the CPU.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import kernel_files, smoke_problem
from test_artifact_study import GOOD

from repro import config
from repro.judge.isolation import uids
from repro.judge.processes import launcher as launch
from repro.judge.timing import counters
from repro.records import reading
from repro.report import artifacts
from repro.studies import artifact_study
from repro.system.jsonio import Json

RANGE = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
METRIC = counters.METRICS
# Units as ncu prints them with --print-units base.
UNITS = {"duration_ns": "ns", "dram_read_bytes": "byte", "dram_bytes_per_s": "byte/second", "sm_clock_hz": "hz"}
REFUSAL = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0."
)
FIRST = {
    "duration_ns": "3,000", "dram_read_bytes": "1,000", "dram_write_bytes": "500", "dram_pct": "80", "sm_pct": "10",
    "registers": "32", "instructions": "7", "l1_pct": "n/a", "sm_clock_hz": "1,500,000,000",
}  # fmt: skip
SECOND = FIRST | {"duration_ns": "1,000", "dram_pct": "40", "registers": "64", "l1_pct": "5"}


def page(*launches: dict[str, str]) -> str:
    """ncu's raw page in CSV, with what else it prints before it. launches: our key -> text; `name` is the kernel's."""
    plain = ["ID", "Process ID", "Process Name", "Host Name", RANGE, "Kernel Name", "Context", "Stream", "Device", "CC"]
    keys = [key for key in METRIC if any(key in each for each in launches)]
    lines = [[*plain, *(METRIC[key] for key in keys)]]
    lines.append([""] * len(plain) + [UNITS.get(key, "") for key in keys])
    for at, each in enumerate(launches):
        name = each.get("name", "kernel")
        facts = [str(at), "4711", "python3.12", "host-of-mine", "", name, "1", "7", "0", "9.0"]
        lines.append([*facts, *(each.get(key, "") for key in keys)])
    table = "\n".join(",".join(f'"{job}"' for job in line) for line in lines)
    return f'==PROF== Connected to process 4711 (/usr/bin/python3.12)\n==PROF== Profiling "kernel"\n{table}\n'


# -- what ncu prints


def test_every_launch_is_kept_with_its_counters():
    first, second = counters._parse(page(FIRST | {"name": "pack<int, 2>"}, SECOND))
    assert first.name == "pack<int, 2>" and first.values.keys() == counters.METRICS.keys()
    assert first.values["duration_ns"] == 3000 and second.values["dram_pct"] == 40
    assert first.values["l1_pct"] is None and first.values["tensor_pct"] is None
    assert "host-of-mine" not in str([first, second])


@pytest.mark.parametrize("text", ["", "n/a", "nan", "inf", "-3", "1e999", "(!) nan"])
def test_what_is_no_count_is_no_value(text):
    (found,) = counters._parse(page(FIRST | {"dram_pct": text}))
    assert found.values["dram_pct"] is None


def test_totals_add_up_weigh_by_duration_or_take_the_largest():
    found = counters.total(counters._parse(page(FIRST, SECOND)))
    assert found.keys() == counters.METRICS.keys()
    assert found["duration_ns"] == 4000 and found["dram_read_bytes"] == 2000 and found["instructions"] == 14
    assert found["dram_pct"] == pytest.approx((80 * 3000 + 40 * 1000) / 4000)
    assert found["registers"] == 64 and found["sm_clock_hz"] == pytest.approx(1.5e9)
    assert found["dram_bytes_per_s"] == pytest.approx(3000 / 4000e-9)
    assert found["l1_pct"] is None, "one launch has none, and a part is no total"


def test_a_call_without_a_launch_has_no_totals():
    assert counters._parse("==WARNING== No kernels were profiled.\n") == []
    assert set(counters.total([]).values()) == {None}


def test_every_metric_that_is_used_is_collected():
    command = counters._command("ncu")
    collected = command[command.index("--metrics") + 1].split(",")
    assert collected == list(METRIC.values()) and len(set(collected)) == len(counters.METRICS)
    assert {*counters._SUMMED, *counters._LARGEST, *artifacts.SHARES} <= counters.METRICS.keys()
    told = " ".join(command)
    for words in (
        "--profile-from-start off",
        "--print-units base",
        "--csv --page raw",
        "--clock-control none",
    ):
        assert words in told
    assert "--launch-skip" not in told and "--launch-count" not in told


# -- the process below ncu


@pytest.fixture(scope="module", autouse=True)
def nothing_stays():
    """Ends what this process's launcher started here: tests of other files count its children."""
    yield
    launch.current().end()


@pytest.fixture
def folder():
    """A folder that every user may read, unlike pytest's own."""
    found = Path(tempfile.mkdtemp(prefix="repro-ncu-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def fake(folder, monkeypatch):
    """Puts an `ncu` on the PATH, `fake(body)`, and returns its path. In the body `command` is what it is to run."""
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(body):
        file = folder / "ncu"
        lines = [
            f"#!{sys.executable} -I", "import os, subprocess, sys, time",
            "command = sys.argv[sys.argv.index('--metrics') + 2:]",
            "run = lambda: subprocess.run(command).returncode", body,
        ]  # fmt: skip
        file.write_text("\n".join(lines))
        file.chmod(0o755)
        return str(file)

    return make


def printing(text: str) -> str:
    return f"print({text!r}, flush=True)"


def profiled(ncu: str, source: str, timeout_s: float = 240.0) -> tuple[counters.Entry, counters.Profiler]:
    """The entry of a kernel of L1_36 on the CPU, and what ran it."""
    profiler = counters.Profiler(ncu, "cpu", timeout_s)
    entry = "ModelNew" if "class ModelNew" in source else "kernel_function"
    found = profiler.profile(smoke_problem("L1_36@bf16"), source.encode(), entry)
    assert not launch.current().workers(), "nothing is left running"
    return found, profiler


@pytest.mark.slow
def test_a_kernel_is_called_on_the_published_inputs_under_no_grad_after_warm_calls(fake):
    checked = GOOD.replace(
        "def kernel_function(",
        "import torch\nCALLS = []\n\n\ndef kernel_function(x, num_features, eps=1e-5):\n"
        "    assert x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and num_features == x.shape[1]\n"
        "    CALLS.append(0)\n    print('not for the judge')\n"
        f"    if len(CALLS) == {counters._WARM_CALLS + 1}:\n"
        "        raise ValueError(f'the profiled call, sum {x.sum():.0f}')\n"
        "    return scaled(x, num_features, eps)\n\n\ndef scaled(",
    )
    found, profiler = profiled(fake("run()\n" + printing(page(FIRST))), checked)
    assert found.state == "not_run" and "ValueError: the profiled call, sum" in found.why
    assert "solution.py:" in found.why and found.launches == []
    assert "not for the judge" not in found.why
    assert profiler.confined["no_new_privs"] == "applied"


MODEL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        assert num_features == 64

    def forward(self, x):
        assert x.dtype == torch.bfloat16 and not self.training
        return x
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", [GOOD, MODEL])
def test_a_kernel_that_ran_has_launches_and_totals(fake, source):
    found, profiler = profiled(fake("run()\n" + printing(page(FIRST, SECOND))), source)
    assert (found.state, found.why) == ("profiled", "") and len(found.launches) == 2
    assert found.totals["duration_ns"] == 4000
    assert profiler.separation == "process" and profiler.own_user


LOOKING = f"""
import os, socket

def tried(action):
    try:
        action()
        return 'could'
    except OSError as error:
        return type(error).__name__

def kernel_function(x, num_features, eps=1e-5):
    found = [tried(lambda: open({str(config.ROOT / "pyproject.toml")!r})),
             tried(lambda: socket.create_connection(('127.0.0.1', 9))),
             tried(lambda: os.kill(os.getppid(), 0))]
    raise ValueError(' '.join(found))
"""


@pytest.mark.slow
def test_a_kernel_below_ncu_is_confined(fake):
    found, profiler = profiled(fake("run()"), LOOKING)
    assert "applied: to this thread and its children" in profiler.confined["seccomp"]
    expected = "PermissionError" if profiler.confined["landlock"].startswith("applied") else "could"
    assert f"ValueError: {expected} PermissionError PermissionError" in found.why


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, words",
    [
        ("def kernel_function(", "SyntaxError"),
        ("def kernel_function(x, weight):\n    return x\n", "is no input and no value of the model"),
        ("import os\n\n\ndef kernel_function(x):\n    os._exit(7)\n", "its process ended before the call did"),
        ("import os\n\n\ndef kernel_function(x):\n    os.abort()\n", "its process ended before the call did"),
    ],
)
def test_a_kernel_that_fails_is_not_run_and_says_why(fake, source, words):
    ended = "code = run()\nif code: print('==ERROR== The application returned an error code (%d)' % code)"
    found, _ = profiled(fake(ended), source)
    assert found.state == "not_run" and words in found.why


@pytest.mark.slow
def test_a_kernel_that_hangs_is_killed_with_all_that_runs_below_it(fake, folder):
    pids = folder / "pids"
    body = (
        "other = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}')\nprint('==PROF== Connected')\n"
        "if os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(600)\nrun()\ntime.sleep(600)"
    )
    profiled(fake("pass"), "")  # the imports are done after this, and do not count
    found, _ = profiled(fake(body), "import time\n\n\ndef kernel_function(x):\n    time.sleep(600)\n", timeout_s=10.0)
    assert found.state == "not_run" and found.why == "it was killed after 10 s"
    assert pids.exists()
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}/exe").exists(), "a child in a session of its own outlived the profile"
    left = [p for p in Path("/proc").glob("[0-9]*") if str(folder) in _command(p)]
    assert not left


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.slow
def test_what_ncu_says_of_a_failure_is_the_reason(fake):
    found, _ = profiled(fake("print('==ERROR== Failed to connect.', file=sys.stderr)\nsys.exit(1)"), GOOD)
    assert (found.state, found.why) == ("failed", "==ERROR== Failed to connect.")
    found, _ = profiled(fake("run()\nprint('==WARNING== No kernels were profiled.')"), GOOD)
    assert (found.state, found.why) == ("failed", "==WARNING== No kernels were profiled.")
    found, _ = profiled("/not/there/ncu", GOOD)
    assert found.state == "failed" and "FileNotFoundError" in found.why


# -- the right to read counters


def test_counters_that_this_user_may_not_read(fake):
    found, profiler = profiled(fake(printing(REFUSAL)), GOOD)
    assert found.state == "no_permission" and "NVreg_RestrictProfilingToAdminUsers=0" in found.why
    assert profiler.own_user


@pytest.mark.slow
def test_kernels_run_as_the_launcher_if_only_its_user_may_read_counters(fake, folder, monkeypatch):
    if not uids.may_change():
        pytest.skip("only root gives workers users of their own")
    ours = launch.Launcher(uids.free(None), os.getpid())
    monkeypatch.setattr(launch, "_current", ours)
    monkeypatch.setattr(launch, "may_administer", lambda: True)
    allowed = f"print({REFUSAL!r}) if os.getuid() else (run(), print({page(FIRST)!r}))"
    try:
        found, profiler = profiled(fake(allowed), GOOD)
        assert found.state == "profiled" and found.why == counters._AS_ROOT
        assert profiler.separation == "process" and not profiler.own_user
        monkeypatch.setattr(launch, "may_administer", lambda: False)
        found, profiler = profiled(fake(allowed), GOOD)
        assert found.state == "no_permission" and profiler.separation == "user"
    finally:
        ours.end()


def test_a_kernel_that_prints_the_refusal_does_not_choose_its_user(fake, monkeypatch):
    monkeypatch.setattr(launch, "may_administer", lambda: True)
    body = f"there = os.path.exists(os.path.join(command[-1], 'solution.py'))\nprint({REFUSAL!r} if there else '')"
    found, profiler = profiled(fake(body), GOOD)
    assert found.state == "no_permission" and profiler.own_user


# -- all kernels of a folder


def folder_entries(tmp_path: Path, device: str, **sources: str):
    """The entries of kernels of L1_36; `missing` has no file."""
    solutions = [("missing", tmp_path / "missing.py", "kernel_function"), *kernel_files(tmp_path, sources)]
    found = {dtype: smoke_problem(dtype=dtype) for dtype in counters.DTYPES}
    return counters.measure(found, solutions, device, lambda line: None)["profiles"]


@pytest.mark.slow
def test_every_kernel_has_an_entry_for_each_dtype(fake, tmp_path):
    fake(printing(page(FIRST)))
    entries = folder_entries(
        tmp_path, "cuda", good=GOOD, banned="import repro\n\n\ndef kernel_function(x):\n    return x\n"
    )
    told = [(each["kernel"], each["dtype"], each["state"]) for each in entries]
    states = {"missing": "not_run", "good": "profiled", "banned": "not_run"}
    assert told == [(kernel, dtype, state) for kernel, state in states.items() for dtype in counters.DTYPES]
    assert "no such kernel" in entries[0]["why"] and "rejected: line 1" in entries[-1]["why"]


def test_without_ncu_the_reason_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    entries = folder_entries(tmp_path, "cuda", good=GOOD)
    assert {each["state"] for each in entries} == {"no_ncu"} and "CUDA toolkit" in entries[0]["why"]
    cpu = folder_entries(tmp_path, "cpu", good=GOOD)
    assert {(each["kernel"], each["dtype"]) for each in cpu} == {
        (k, d) for k in ("missing", "good") for d in counters.DTYPES
    }
    assert {each["state"] for each in cpu} == {"no_gpu"}
    monkeypatch.setenv("REPRO_GIT_SHA", "0" * 40)  # as inside the image
    assert "image" in folder_entries(tmp_path, "cuda", good=GOOD)[0]["why"]


# -- the command line, bundle and report

NAME, MARK = "36_RMSNorm", "this_name_stands_in_no_other_file"


def row(*entries: Json) -> Json:
    """A finished row of profiles."""
    plain = {"kernel": "optimized", "dtype": "float32", "ncu": "", "clock_control": "none", "state": "profiled",
             "why": "", "launches": [], "totals": counters.total([])}  # fmt: skip
    result = {"profiles": [plain | each for each in entries]}
    return {"row": f"{NAME}/profile", "problem": NAME, "profile": True, "status": "done", "error": "",
            "content": "0" * 16, "wall_s": 1.0, "fingerprint_id": None, "result": result}  # fmt: skip


def test_the_line_and_the_table_have_times_shares_and_reasons():
    totals = counters.total(
        counters._parse(page(FIRST | {"duration_ns": "3,000,000", "dram_read_bytes": "4,499,999,500"}))
    )
    found = row(
        {"kernel": "input_kernel", "dtype": "bfloat16", "totals": totals},
        {"kernel": "optimized", "dtype": "float32", "state": "not_run", "why": "it was killed after 120 s"},
    )
    line = artifact_study.summary(reading.row(found))
    assert line == "1 of 2 calls profiled; not run: it was killed after 120 s"
    section = artifacts.profiles([SimpleNamespace(letter="A", profiles={36: reading.row(found)})])
    (table,) = section.tables
    lines = [dict(zip([head.title for head in table.columns], line, strict=True)) for line in table.rows]
    assert lines[0]["ms"] == 3 and lines[0]["DRAM"] == 0.8 and lines[0]["DRAM GB/s"] == pytest.approx(1500)
    assert lines[1]["state"] == "not run: it was killed after 120 s" and lines[1]["ms"] is None


def test_a_row_of_profiles_is_not_taken_for_the_artifact_itself():
    judged = row() | {"profile": None, "result": {"results": []}}
    assert (
        not artifact_study.own(reading.row(row()))
        and not artifact_study.own(reading.row(judged | {"rounds": {}}))
        and artifact_study.own(reading.row(judged))
    )
    assert reading.row(row() | {"status": "lost", "result": None}).profiles == []
