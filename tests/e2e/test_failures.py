"""What a user meets when something goes wrong: one clear line, the right exit code, and nothing measured is lost.

The real command line on real files. What several tests look at is a scenario: a function that runs commands and returns
what they left.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import (
    CPU,
    Done,
    Tool,
    ask_docker,
    attempt,
    fresh,
    manifest,
    rows,
    small_disk,
    smoke_problem,
    strict_json,
    verdict_of,
    wait_for,
)

from repro import config as settings
from repro.engines import local
from repro.errors import EngineGone, PrerequisiteError
from repro.fixtures import store as fixtures
from repro.fixtures.store import SCHEMA_VERSION
from repro.records.options import Options
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.system import jsonio
from repro.system.jsonio import Json

pytestmark = pytest.mark.timeout(600)

JUDGE = (*CPU, "--no-timing")
NO_GPU = shutil.which("nvidia-smi") is None

# -- solutions

RMS_NORM = """import ctypes, os, signal, sys, time
import torch
from torch import nn
{top}

class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        y = x / torch.sqrt(x.square().mean(1, keepdim=True) + self.eps)
        {body}
        return y
"""
CONVOLUTION = """import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.{name} = nn.Conv2d(channels, channels, kernel_size, stride, padding, groups=channels, bias=bias)

    def forward(self, x):
        return self.{name}(x)
"""
# The launcher is the worker's parent and the job's first process is the launcher's, the judge stands in its arguments:
# neither they nor their groups take a signal.
SIGNAL_JUDGE = """
def signal_judge():
    def told(pid, name):
        lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
        return int(lines[name].split()[0])
    parent = os.getppid()
    family = [parent, told(parent, "PPid")]
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            command = open(f"/proc/{pid}/cmdline").read().split(chr(0))
            warden = told(pid, "Uid") == os.getuid() != told(parent, "Uid")
            if told(pid, "PPid") == parent and "job" in command and not warden:
                family.append(pid)
        except OSError:
            continue
    if len(family) < 3:
        raise RuntimeError(f"no judge among {family}")
    for pid in family:
        for send, target in ((os.kill, pid), (os.killpg, os.getpgid(pid))):
            try:
                send(target, signal.SIGKILL)
            except PermissionError:
                continue
            raise RuntimeError(f"{target} took a signal")
"""


def rms_norm(body: str = "", top: str = "") -> str:
    """A right solution of L1_36 with a line of its own in `forward` or at the top."""
    return RMS_NORM.format(top=top, body=body)


GOOD = rms_norm()
CONV = CONVOLUTION.format(name="conv2d")
WRONG = rms_norm("y = torch.zeros_like(x)")
HANG = rms_norm("time.sleep(600)")
# Its scratch folder goes deeper than a path can be long or a function can call itself.
NEST = """
here = os.open(".", os.O_RDONLY)
for _ in range(1500):
    os.mkdir("a")
    os.chdir("a")
os.fchdir(here)
"""
# An answer of its worker goes too deep to be written.
DEEP = """
def deeper(real):
    def deep(*args, **more):
        value = {}
        for _ in range(700):
            value = {"a": value}
        return real(*args, **more) | value
    return deep

for name, module in list(sys.modules.items()):
    if name.endswith("judge.worker.server"):
        module.Worker.METHOD = deeper(module.Worker.METHOD)
"""
# It leaves a file in its scratch folder, the one place where it may write.
HANG_AND_TELL = rms_norm("open('hangs', 'w').close(); time.sleep(600)")
# It says that it works, and its only call takes long enough for a signal to arrive.
UNHURRIED = rms_norm("open('hangs', 'w').close(); time.sleep(6); raise ValueError('at last')")


@dataclass(frozen=True)
class Bad:
    """A solution and the verdict and reason code that it must get."""

    verdict: str
    code: str
    source: str
    problem: str = "L1_36"


BAD = {
    "syntax_error": Bad("error", "syntax_error", "def ModelNew(:\n"),
    "nested_too_deep": Bad("error", "import_error", "x = " + "-" * 100_000 + "1\n"),
    "import_exits": Bad("error", "import_error", rms_norm(top="sys.exit(0)")),
    "wrong_state_dict": Bad("error", "state_dict_mismatch", CONVOLUTION.format(name="convolution"), "L1_82"),
    "none": Bad("incorrect", "wrong_structure", rms_norm("return None")),
    "input_modified": Bad("incorrect", "input_modified", rms_norm("x.zero_()")),
    "subclass": Bad(
        "incorrect", "wrong_type", rms_norm("return y.as_subclass(Mine)", "class Mine(torch.Tensor):\n    pass")
    ),
    "zeros": Bad("incorrect", "rel_l2", WRONG),
    "segfault": Bad("error", "segfault", rms_norm("ctypes.string_at(0)")),
    "exits": Bad("error", "worker_exited", rms_norm("os._exit(0)")),
    "unnamed_signal": Bad("error", "worker_died", rms_norm("os.kill(os.getpid(), 40)")),
    "closed_fds": Bad("error", "worker_exited", rms_norm(top="os.closerange(3, 64)")),
    "banned": Bad("rejected", "banned", rms_norm("sys.settrace(None)")),
    "nested_in_an_answer": Bad("rejected", "protocol_tampered", rms_norm(top=DEEP.replace("METHOD", "run"))),
    "surrogate": Bad("error", "exception", rms_norm("raise ValueError('\\ud800 \\x1b[2K\\r')")),
    "surrogate_name": Bad("incorrect", "wrong_structure", rms_norm("return type('\\x1b[2J', (), {})()")),
    "prints_and_dies": Bad("error", "worker_exited", rms_norm("print('\\x1b[2K', flush=True); os._exit(3)")),
    "nested_folders": Bad("correct", "", rms_norm(top=NEST)),
    "kills_judge": Bad("correct", "", rms_norm("signal_judge()", top=SIGNAL_JUDGE)),
    "prints_megabytes": Bad("correct", "", rms_norm("print('x' * (8 << 20), flush=True)")),
}
# With --budget timeout_s=3.
BOUND_S = 3
BOUNDED = {
    "hangs": Bad("timeout", "timeout", HANG),
    "child_holds_pipe": Bad("timeout", "timeout", rms_norm("os._exit(0) if os.fork() else time.sleep(600)")),
}


def put(tool: Tool, **sources: str):
    """Writes solutions into the tool's folder, each as NAME.py."""
    for name, source in sources.items():
        (tool.folder / f"{name}.py").write_text(source)


def write(folder: Path, solutions: dict[str, Bad]) -> Path:
    """A folder of these solutions; the right one comes last."""
    folder.mkdir()
    for name, bad in solutions.items():
        (folder / f"{bad.problem}_{name}.py").write_text(bad.source)
    (folder / "L1_82_zz_good.py").write_text(CONV)
    return folder


# -- scenarios


def scenario(play: Callable[[Tool], Any]):
    """A fixture with what `play` returns; it gets a tool with the smoke fixtures in its results."""

    @pytest.fixture(scope="module", name=play.__name__)
    def result(request, tmp_path_factory, smoke_results):
        if play.__name__.startswith("docker_"):
            request.getfixturevalue("image")
        return play(fresh(tmp_path_factory.mktemp(play.__name__), smoke_results))

    return result


def hangs(tool: Tool) -> bool:
    """Whether a solution has said that it hangs."""
    with contextlib.suppress(OSError):
        return any(tool.tmp.rglob("hangs"))
    return False


def remains(tool: Tool) -> list[object]:
    """Processes and temporary folders of a command that ended."""
    return [*tool.processes(), *tool.tmp.glob("repro-*")]


def interrupted(tool: Tool, process: subprocess.Popen[str]) -> Done:
    """Ends a command by Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)
    done = tool.finish(process)
    assert done.code == 130
    return done


def lines(tool: Tool) -> int:
    """How many rows the newest bundle holds."""
    file = tool.bundles()[-1] / "rows.jsonl" if tool.bundles() else None
    return file.read_bytes().count(b"\n") if file is not None and file.exists() else 0


# -- wrong use

DEAD_SOCKET = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
# name: (command, what its one line must say); verbs that judge do so on the CPU where no engine is named
USAGE = {
    "run-unknown-problem": ("run --problem L9_99", ("no problem L9_99", "L1_36, L1_82")),
    "fixtures-unknown-problem": ("fixtures --problem L9_99", ("no problem 'L9_99'", "shipped are")),
    "evaluate-unknown-problem": ("evaluate mine.py --problem L9_99", ("no problem 'L9_99'", "file's path")),
    "problem-without-protocol": (
        "evaluate mine.py --problem mine.py", ("not a KernelBench problem", "get_init_inputs")
    ),
    "problem-not-python": ("evaluate mine.py --problem broken.py", ("broken.py is not Python",)),
    "problem-missing": ("evaluate mine.py --problem none.py", ("none.py", "No such file")),
    "solution-without-id": ("evaluate mine.py", ("no problem is named for mine.py", "Add --problem")),
    "solution-missing": ("evaluate none.py", ("no such file or folder: none.py",)),
    "folder-without-solutions": ("evaluate empty", ("no file in empty is named after a problem", "L1_36_mine.py")),
    "folder-without-ids": ("evaluate .", ("nothing to evaluate", "named after a problem")),
    "artifacts-empty": ("benchmark --artifacts empty", ("no artifact in empty", "NN_Name")),
    "artifacts-missing": ("benchmark --artifacts none", ("no such folder: none",)),
    "artifact-unknown": ("benchmark 99", ("no artifact 99", "36_RMSNorm")),
    "results-is-a-file": ("fixtures --results mine.py", ("mine.py", "Choose another --results")),
    "report-without-bundle": ("report", ("no bundle in", "repro run")),
    "report-of-no-bundle": ("report empty", ("empty is not a bundle", "manifest.json")),
    "report-of-something-else": ("report foreign", ("foreign is not a bundle",)),
    "suite-with-a-path": ("evaluate mine.py --suite agent", ("--suite takes no PATH",)),
    "repeats": ("run --repeats 0", ("--repeats must be at least 1",)),
    "timeout-zero": ("evaluate L1_36.py --budget timeout_s=0", ("timeout_s", "positive")),
    "budget-infinite": ("evaluate L1_36.py --budget timing_s=inf", ("timing_s", "positive")),
    "timeout-word": ("run --budget timeout_s=soon", ("timeout_s", "positive")),
    "unknown-flag": ("run --fast", ("unknown argument --fast", "repro run --help")),
    "mistyped-flag": ("run --probem L1_36", ("unknown argument --probem", "Did you mean --problem?")),
    "unknown-size": ("run --size huge", ("invalid choice: 'huge'",)),
    "unknown-verb": ("judge", ("no verb 'judge'", "evaluate, fixtures", "repro --help")),
    "no-verb": ("", ("required: VERB",)),
    "engine-dead": ("run --engine docker", ("no Docker engine", "nonexistent", "--engine local")),
    "engine-address": ("run --engine docker", ("no Docker engine", "--engine local")),
    "clean-engine-dead": ("doctor --clean", ("no Docker engine",)),
}  # fmt: skip
if NO_GPU:
    USAGE["claims-without-a-gpu"] = ("claims --engine local", ("no GPU here", "repro verify DIR"))
    USAGE["gpu-0-of-none"] = ("run --engine local --gpus 0", ("no NVIDIA GPU here", "leave --gpus out"))
    USAGE["no-gpu"] = ("run --engine local --device cuda", ("no NVIDIA GPU", "--size smoke"))


ENVIRONMENT = {
    "engine-dead": DEAD_SOCKET, "clean-engine-dead": DEAD_SOCKET, "engine-address": {"DOCKER_HOST": "what://?"}
}  # fmt: skip
JUDGE_VERBS = ("run", "fixtures", "evaluate", "benchmark")
# These start as a user's command; the others are called in this process, for a start takes seconds.
STARTED = {"no-verb", "unknown-flag", "solution-missing", "engine-dead"}


@pytest.mark.parametrize("mistake", USAGE)
def test_wrong_use_exits_1_with_one_line_and_leaves_nothing(mistake, tool):
    """The command runs in a folder with some files."""
    command, words = USAGE[mistake]
    (tool.folder / "empty").mkdir()
    (tool.folder / "foreign").mkdir()
    (tool.folder / "foreign" / "manifest.json").write_text('{"name": "something else"}')
    put(tool, mine=GOOD, broken="def (")
    if mistake != "folder-without-ids":
        put(tool, L1_36=GOOD)
    line = command.split()
    if line and line[0] in JUDGE_VERBS and "--engine" not in line:
        line += CPU
    done = (tool if mistake in STARTED else tool.within)(*line, **ENVIRONMENT.get(mistake, {}))
    assert done.code == 1, done.err
    assert all(word in done.complaint for word in words), done.complaint
    assert not list(tool.results.glob("*"))
    if mistake in ("solution-missing", "folder-without-ids", "artifacts-missing", "artifact-unknown"):
        assert len(done.err.splitlines()) == 1, "told before an engine is looked for"


def test_an_engine_that_does_not_answer_leaves_no_socket_open(monkeypatch, tmp_path):
    """A warning about an open socket is an error here, as every warning is."""
    from repro.engines import docker

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "deaf.sock"))  # nothing is accepted there
    with listener:
        for name in ("none.sock", "deaf.sock"):
            monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / name}")
            with pytest.raises(PrerequisiteError, match=f"no Docker engine at unix://.*{name}"):
                docker.connect()
            gc.collect()


# -- bad solutions


# Each in a row of its own, so that a command shows what the bundle, the terminal and the exit code make of them.
FEW = ("zeros", "exits", "surrogate", "wrong_state_dict")
# What one job judges, with what it allows a solution.
REST = {name: bad for name, bad in BAD.items() if name not in FEW}
TOGETHER = {
    "rest": (REST, Options(timing=False)), "bounded": (BOUNDED, Options(timing=False, timeout_s=BOUND_S))
}  # fmt: skip


def _check(name: str, bad: Bad, entry: Json):
    assert entry["verdict"] == bad.verdict, (name, entry["reasons"])
    if bad.code:
        reason = entry["reasons"][0]
        assert reason["code"] == bad.code and "\n" not in reason["detail"], (name, entry["reasons"])
        assert reason["detail"].isprintable(), (name, reason)
    else:
        assert not entry["reasons"], name


@pytest.mark.slow
def test_bad_solutions_get_their_verdicts_and_touch_no_other(judge_tool):
    """The last solution is right. No process and no temporary folder outlives the command; the bundle is whole. The
    command ignores SIGCHLD, as what starts it may: its children inherit that, and get no signal of an end."""
    folder = write(judge_tool.folder / "solutions", {name: BAD[name] for name in FEW})
    done = judge_tool("evaluate", folder, *JUDGE, "--json", "out.json", "--strict", ignoring="CHLD")
    assert done.code == 3, done.err
    results = judge_tool.json()["results"]
    verdicts = {entry["solution"].removesuffix(".py"): entry for entry in results}
    for name in FEW:
        _check(name, BAD[name], verdicts[f"{BAD[name].problem}_{name}"])
    assert "code 0" in verdicts["L1_36_exits"]["reasons"][0]["detail"]
    assert verdicts["L1_82_zz_good"]["verdict"] == "correct"
    assert not remains(judge_tool), "processes or temporary folders outlive the command"
    (bundle,) = judge_tool.bundles()
    facts, found = manifest(bundle), rows(bundle)
    assert facts["status"] == "complete" and list(found) == facts["plan"]
    strict_json((bundle / "report.json").read_text())
    for name, digest in facts["files"].items():
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest, name


@pytest.fixture
def local_engine(judge_tool, monkeypatch):
    """The local engine in this process, its folders those of the tool."""
    monkeypatch.setattr(tempfile, "tempdir", str(judge_tool.tmp))
    monkeypatch.setenv("REPRO_STATE", str(judge_tool.folder / "state"))
    return local.LocalEngine(gpus="none", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("which", TOGETHER)
def test_bad_solutions_of_one_job_touch_no_other(which, judge_tool, local_engine):
    """The last one is right."""
    solutions, options = TOGETHER[which]
    sources = {name: bad.source for name, bad in solutions.items()} | {"good": GOOD}
    (outcome,), _ = attempt(local_engine, [_job(judge_tool.results, local_engine, sources, options)], 300.0)
    assert outcome.status == "done", outcome
    # a process that imports torch starts within seconds; the timeout itself is three for each solution
    assert which == "rest" or outcome.wall_s < BOUND_S + 45
    *found, good = outcome.to_json()["result"]["results"]
    for (name, bad), entry in zip(solutions.items(), found, strict=True):
        _check(name, bad, entry)
    assert good["verdict"] == "correct"
    assert not remains(judge_tool)


@pytest.mark.slow
def test_rows_that_lose_their_judge_exit_2(judge_tool):
    """Two solutions hang: the judge of one is killed, and the launcher of the other; then the next row is judged.
    Nothing of the first two stays: neither process nor folder."""
    tool = judge_tool
    put(tool, L1_36_a=HANG_AND_TELL, L1_36_b=HANG_AND_TELL, L1_82=CONV)
    process = tool.start("evaluate", "L1_36_a.py", "L1_36_b.py", "L1_82.py", *JUDGE)
    for number, killed in enumerate(("judge", "launcher")):
        wait_for("the solution", lambda number=number: lines(tool) == number and hangs(tool), process)
        _, launcher, judge = sorted(pid for pid, command in tool.pids().items() if " job " in command)
        os.kill(judge if killed == "judge" else launcher, signal.SIGKILL)
    done = tool.finish(process)
    (bundle,) = tool.bundles()
    found = rows(bundle)
    assert done.code == 2
    assert "2 of 3 rows" in done.complaint and "L1_36/L1_36_a" in done.complaint
    assert manifest(bundle)["status"] == "incomplete"
    for name in "ab":
        row = found[f"L1_36/L1_36_{name}"]
        assert row["status"] == "failed" and "ended with signal SIGKILL" in row["error"]
    assert verdict_of(found["L1_82/L1_82"]) == "correct"
    assert not remains(tool)


@pytest.mark.slow
def test_solutions_named_like_baselines_are_timed_against_the_baselines(judge_tool):
    """Where --engine auto finds no engine, and says so."""
    names = ("eager_fp32", "baseline")
    put(judge_tool, **dict.fromkeys(names, CONV))
    flags = ("--problem", "L1_82", "--device", "cpu", "--budget", "timing_s=1", "--strict")
    done = judge_tool("evaluate", *(f"{name}.py" for name in names), *flags, **DEAD_SOCKET)
    assert done.code == 0 and "running without containers" in done.err, done.err
    for name in names:
        result = rows(judge_tool.bundles()[0])[f"L1_82/{name}"]["result"]
        assert result["results"][0]["verdict"] == "correct" and result["results"][0]["speedup"]["eager"]
        assert set(result["baselines"]) == {"eager", "eager_fp32"}
        assert len(result["samples_ms"]) == 3
        assert result["telemetry"]["sampler"]["status"] == "off: the run used the CPU"
        assert result["dynamic"]["before"]["load_1m"]["value"] >= 0 and "after" in result["dynamic"]


# -- fixtures and problems that cannot judge


@scenario
def broken_fixtures(tool: Tool) -> SimpleNamespace:
    """One folder of solutions: a fixture is refused, one is cut short, one is missing; then again with --resume."""
    folder = tool.results / "fixtures" / "smoke-cpu"
    intact = (folder / "L1_36.json").read_text()
    (folder / "L1_36.json").write_text(json.dumps(json.loads(intact) | {"refused": "the cheat 'zeros' passes"}))
    (folder / "L1_82.json").write_text((folder / "L1_82.json").read_text()[:500])
    solutions = tool.folder / "solutions"
    solutions.mkdir()
    for name in ("L1_36", "L1_43"):
        (solutions / f"{name}_mine.py").write_text(GOOD)
    (solutions / "L1_82_mine.py").write_text(CONV)
    first = tool("evaluate", solutions, *JUDGE, "--json", "out.json")
    measured, judged = tool.bundles()
    before, status = rows(judged), manifest(judged)["status"]
    (folder / "L1_36.json").write_text(intact)
    (solutions / "L1_82_mine.py").write_text(CONV.replace("(x)", "(x) * 0"))
    again = tool("evaluate", solutions, *JUDGE, "--resume")
    return SimpleNamespace(
        first=first, measured=rows(measured), before=before, status=status, again=again, after=rows(judged), tool=tool
    )


@pytest.mark.slow
def test_evaluate_measures_missing_and_damaged_fixtures_first(broken_fixtures):
    """In one job of its own, said in a line, kept below the results folder; a refused one is not measured again."""
    assert set(broken_fixtures.measured) == {"L1_43", "L1_82"}
    (line,) = [line for line in broken_fixtures.first.err.splitlines() if "measuring" in line]
    assert "smoke-cpu" in line and line.endswith(": L1_43, L1_82")
    assert "measuring" not in broken_fixtures.again.err and len(broken_fixtures.tool.bundles()) == 2
    (entry,) = broken_fixtures.before["L1_82/L1_82_mine"]["result"]["results"]
    assert entry["verdict"] == "correct"


@pytest.mark.slow
def test_a_refused_fixture_fails_its_row_with_what_to_do(broken_fixtures):
    row = broken_fixtures.before["L1_36/L1_36_mine"]
    assert row["status"] == "unmet"
    assert all(word in row["error"] for word in ("refused", "the cheat 'zeros' passes", "suites.toml"))
    assert broken_fixtures.first.code == 1 and broken_fixtures.status == "incomplete"
    assert "1 of 3 rows" in broken_fixtures.first.complaint and "L1_36" in broken_fixtures.first.complaint


@pytest.mark.slow
def test_resume_judges_what_was_mended_and_what_was_edited_meanwhile(broken_fixtures):
    after = broken_fixtures.after
    assert verdict_of(after["L1_36/L1_36_mine"]) == "correct"
    assert verdict_of(after["L1_82/L1_82_mine"]) == "incorrect", "its file had changed"
    assert broken_fixtures.again.code == 0, broken_fixtures.again.err
    assert "fails verification" not in broken_fixtures.again.out, "it tells of the first run's files"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ("no fixture for L1_36", "is missing")),
        ('{"refused": "", ', ("cannot be read",)),
        ("[]", ("another schema",)),
        ('{"schema_version": 0}', ("another schema",)),
        (json.dumps({"schema_version": SCHEMA_VERSION}), ("not whole", "margin: Field required")),
        ({"problem_sha256": "0" * 64}, ("of another version of L1_36_RMSNorm.py",)),
        ({"refused": "the cheat 'zeros' passes"}, ("refused", "the cheat 'zeros' passes", "suites.toml")),
    ],
)
def test_an_unusable_fixture_says_what_is_wrong_and_what_to_do(text, words, tmp_path, smoke_fixture):
    file, problem = tmp_path / "fixture.json", smoke_problem()
    if isinstance(text, dict):
        text = jsonio.dumps(smoke_fixture("L1_36").to_json() | text)
    if text is not None:
        file.write_text(text)
    with pytest.raises(PrerequisiteError) as caught:
        fixtures.load(file, problem)
    assert all(word in str(caught.value) for word in words), caught.value
    refused = "refused" in words
    assert refused or "repro fixtures --problem L1_36" in str(caught.value)
    assert fixtures.known(file, problem) == refused


def test_incomplete_artifacts_are_reported(tool):
    """A folder in the published layout whose artifacts lack something. Complete ones are judged beside them:
    tests/studies/test_artifact_study.py."""
    artifacts = tool.folder / "artifacts"
    shipped = settings.ARTIFACTS_DIR / "36_RMSNorm"
    for name in ("4_no_problem", "43_no_kernel", "77_not_python", "82_kernel_is_a_folder"):
        shutil.copytree(shipped, artifacts / name)
    (artifacts / "4_no_problem" / "problem.py").unlink()
    for file in ("input_kernel.py", "optimized_kernel_beam_search.py"):
        (artifacts / "43_no_kernel" / file).unlink()
    (artifacts / "77_not_python" / "problem.py").write_text("def (")
    (artifacts / "82_kernel_is_a_folder" / "input_kernel.py").unlink()
    (artifacts / "82_kernel_is_a_folder" / "input_kernel.py").mkdir()
    done = tool.within("benchmark", "--artifacts", artifacts, *JUDGE, "--json", "out.json")
    entries = {entry["problem"]: entry for entry in tool.json()}
    assert "problem.py" in entries["4_no_problem"]["reasons"][0]
    assert "holds no kernel" in entries["43_no_kernel"]["reasons"][-1]
    assert "is not Python" in entries["77_not_python"]["reasons"][0]
    assert "input_kernel.py" in entries["82_kernel_is_a_folder"]["reasons"][0]
    assert done.code == 1 and "4 of 4 rows" in done.complaint


# -- disks


def fill(folder: Path) -> Path:
    """A file that takes what is left of a disk."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)) == 4096:
            continue
    return ballast


def test_read_only_results_exit_1(tool):
    put(tool, L1_36=GOOD)
    with small_disk(tool.folder / "read_only", "ro"):
        done = tool.within("evaluate", "L1_36.py", *JUDGE, "--results", "read_only")
    assert done.code == 1
    assert "Read-only file system" in done.complaint and "Choose another --results" in done.complaint


@pytest.mark.slow
def test_fixtures_that_cannot_be_written_exit_2_and_stay_in_the_bundle(judge_tool):
    """`results/fixtures` is a file."""
    shutil.rmtree(judge_tool.results / "fixtures")
    (judge_tool.results / "fixtures").write_text("")
    done = judge_tool("fixtures", "--problem", "L1_82", *CPU)
    assert done.code == 2
    assert "cannot write" in done.complaint
    assert {row["status"] for row in rows(judge_tool.bundles()[0]).values()} == {"done"}


@pytest.mark.slow
def test_a_full_temporary_folder_fails_its_row_and_a_solution_that_fills_it_fails_alone(judge_tool):
    """Another program fills that disk when a job has begun, and frees it when its row is written. The next solution
    leaves the disk full: what it wrote goes with its worker, before the outcome is written."""
    tool, small = judge_tool, judge_tool.folder / "small"
    fills = "f = open('ballast', 'wb', buffering=0)\ntry:\n    while f.write(bytes(4096)): pass\nexcept OSError: pass"
    # the first has no worker, whose folder would give space back
    put(tool, L1_36=BAD["banned"].source, L1_36_fills=rms_norm(top=fills), L1_82=CONV)
    with small_disk(small, "size=1m"):
        files = ("L1_36.py", "L1_36_fills.py", "L1_82.py")
        process = tool.start("evaluate", *files, *JUDGE, TMPDIR=str(small))
        wait_for("the job", lambda: any(" job " in line for line in tool.processes()), process)
        ballast = fill(small)
        wait_for("the first row", lambda: lines(tool), process)
        ballast.unlink()
        done = tool.finish(process)
        assert not list(small.iterdir())
    assert done.code == 2
    assert "No space left" in done.complaint
    failed, *others = rows(tool.bundles()[0]).values()
    assert failed["row"] == "L1_36/L1_36" and failed["status"] == "failed"
    assert list(map(verdict_of, others)) == ["correct"] * 2


# -- interruptions


@pytest.mark.slow
def test_interrupted_and_killed_and_resumed_a_run_ends_with_its_plan(judge_tool):
    """Ctrl-C in the second row of two exits with 130 and leaves neither a process nor a temporary folder. Resumed and
    killed in the second row, then resumed to its end, the run has measured each row once."""
    tool = judge_tool
    for arm, source in (("quick", GOOD), ("unhurried", UNHURRIED)):
        (tool.folder / arm).mkdir()
        (tool.folder / arm / "L1_36.py").write_text(source)
    command = ("run", "--problem", "L1_36", *JUDGE, "--solutions", "quick=quick", "--solutions", "unhurried=unhurried")
    process = tool.start(*command)
    wait_for("the second row's solution", lambda: hangs(tool), process)
    assert lines(tool) == 1
    stopped = interrupted(tool, process)
    assert not remains(tool)
    assert "interrupted: 1 of 2 rows" in stopped.complaint and "--resume" in stopped.complaint
    (bundle,) = tool.bundles()
    first = rows(bundle)
    assert manifest(bundle)["status"] == "interrupted"

    process = tool.start(*command, "--resume")
    wait_for("the second row's solution", lambda: hangs(tool), process)
    process.kill()
    tool.finish(process)
    assert manifest(bundle)["status"] == "running"

    (tool.folder / "quick" / "notes.md").write_text("")  # a file that came meanwhile
    again = tool(*command, "--resume")
    again.succeeded()
    found, facts = rows(bundle), manifest(bundle)
    assert tool.bundles() == [bundle] and facts["status"] == "complete"
    assert facts["unused_files"] == {"quick": ["notes.md"]}
    assert list(found) == facts["plan"] == ["L1_36/quick/0", "L1_36/unhurried/0"]
    assert found["L1_36/quick/0"] == first["L1_36/quick/0"], "it was measured before"
    assert list(map(verdict_of, found.values())) == ["correct", "error"]


@pytest.mark.slow
def test_ctrl_c_keeps_the_fixtures_that_are_measured(tool):
    """They are below the results folder at once, for what is judged before the rest is measured."""
    process = tool.start("fixtures", *CPU)
    bundle = wait_for("the bundle", lambda: next(iter(tool.bundles()), None), process)
    wait_for("a row", lambda: (bundle / "rows.jsonl").exists() and len(rows(bundle)) > 0, process)
    interrupted(tool, process)
    kept = {file.stem for file in (bundle.parent / "fixtures" / "smoke-cpu").glob("*.json")}
    assert kept == set(rows(bundle)) and kept < set(manifest(bundle)["plan"])


def test_killed_tool_takes_its_job_and_worker_with_it(judge_tool):
    """SIGKILL for the tool while a solution hangs."""
    put(judge_tool, L1_36=HANG_AND_TELL)
    process = judge_tool.start("evaluate", "L1_36.py", *JUDGE)
    wait_for("the solution", lambda: hangs(judge_tool), process)
    process.kill()
    judge_tool.finish(process)
    wait_for("an end of all, against which the next run would be timed", lambda: not judge_tool.processes())


def _job(results: Path, engine, sources: dict[str, str], options: Options):
    """The job of L1_36 that judges solutions of these texts."""
    problem = smoke_problem()
    submissions = [evaluation.Submission(name, source.encode(), "ModelNew") for name, source in sources.items()]
    return evaluation.job(Run(engine, results, Progress(), options), "job", problem, submissions)


def _hanging_job(results: Path, engine):
    return _job(results, engine, {"hang": HANG}, Options(timing=False))


@pytest.mark.slow
def test_job_that_outlives_its_bound_is_killed_whole(judge_tool, local_engine):
    outcomes, ending = attempt(local_engine, [_hanging_job(judge_tool.results, local_engine)], 6.0)
    assert not outcomes and ending == "timed out after 6 s and was killed"
    assert not remains(judge_tool)


# -- containers

DOCKER = ("--engine", "docker", "--device", "cpu", "--size", "smoke", "--no-timing")


def containers(process: subprocess.Popen[str], *flags: str) -> list[str]:
    """Ids of the containers that belong to a command."""
    return owned(process, "ps", "--no-trunc", *flags, "--format", '{{.ID}} {{.Label "repro.owner"}}')


def garbage(process: subprocess.Popen[str], *flags: str) -> list[str]:
    """Its containers, and the names of its volumes."""
    volumes = owned(process, "volume", "ls", "--format", '{{.Name}} {{.Label "repro.owner"}}')
    return containers(process, *flags) + volumes


def owned(process: subprocess.Popen[str], *listing: str) -> list[str]:
    """The first word of each line that belongs to a command."""
    text = ask_docker(*listing, "--filter", "label=repro.owner")
    return [line.split()[0] for line in text.splitlines() if f"-{process.pid}-" in line]


@scenario
def docker_run(tool: Tool) -> SimpleNamespace:
    """Solutions judged in containers, the first container inspected while it runs."""
    solutions = {name: {**BAD, **BOUNDED}[name] for name in ("zeros", "segfault", "hangs")}
    folder = write(tool.folder / "solutions", solutions)
    process = tool.start("evaluate", folder, *DOCKER, "--budget", "timeout_s=10", "--json", "out.json")
    first, *_ = wait_for("a container", lambda: containers(process), process)  # two begin together where two jobs fit
    inspected = json.loads(ask_docker("inspect", first))[0]
    done = tool.finish(process)
    results = tool.json()["results"]
    verdicts = {entry["solution"].removesuffix(".py"): entry for entry in results}
    left = garbage(process, "--all")
    engine = manifest(tool.bundles()[0])["engine"]
    return SimpleNamespace(done=done, inspected=inspected, verdicts=verdicts, left=left, engine=engine)


@pytest.mark.docker
def test_containers_give_the_verdicts_of_local_processes(docker_run):
    assert docker_run.done.code == 0, docker_run.done.err
    for name in ("zeros", "segfault", "hangs"):
        _check(name, {**BAD, **BOUNDED}[name], docker_run.verdicts[f"L1_36_{name}"])
    good = docker_run.verdicts["L1_82_zz_good"]
    assert good["verdict"] == "correct" and (good["trust"], good["separation"]) == ("audited", "user")
    assert docker_run.engine["engine"] == "docker" and docker_run.engine["image_id"].startswith("sha256:")


@pytest.mark.docker
def test_container_of_a_solution_is_hardened(docker_run):
    """Root with the right to become others and no other; judge and workers have none (tests/e2e/test_image.py)."""
    host, config = docker_run.inspected["HostConfig"], docker_run.inspected["Config"]
    assert host["ReadonlyRootfs"] and not host["Privileged"]
    assert host["CapDrop"] == ["ALL"]
    assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == {"SETUID", "SETGID"}
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["NetworkMode"] == "none" and not host["PortBindings"]
    assert host["IpcMode"] == "private" and host["PidMode"] == "" and host["UTSMode"] == ""
    assert 0 < host["PidsLimit"] <= 4096 and host["Memory"] > 0
    assert config["User"] == "0:0", (
        "the launcher: it may become others, and gives that up for the judge and the workers"
    )
    mounts = sorted((m["Type"], m["Destination"]) for m in docker_run.inspected["Mounts"])
    assert mounts == [("volume", "/job"), ("volume", "/state")]
    assert not host["Binds"] and not host["Devices"]
    assert {"repro.run", "repro.owner"} <= config["Labels"].keys()
    assert not [line for line in config["Env"] if "KEY" in line or "TOKEN" in line]


@pytest.mark.docker
def test_container_reports_facts_from_its_engine(image, tool):
    done = tool("doctor", "--engine", "docker", "--device", "cpu", "--json", "out.json")
    done.succeeded()
    values = tool.json()["fingerprint"]["values"]
    told = {name: value["value"] for name, value in values.items()}
    assert told["engine"] == "docker"
    assert told["image_id"] == ask_docker("image", "inspect", "--format", "{{.Id}}", settings.image()).strip()
    assert told["engine_version"] == ask_docker("version", "--format", "{{.Server.Version}}").strip()
    assert told["runtime"] and len(told["container_id"]) == 12
    assert values["toolkit"]["value"] or values["toolkit"]["status"] == "absent: the engine did not tell"


@pytest.mark.docker
def test_containers_and_volumes_go_with_their_jobs(docker_run):
    assert not docker_run.left


@pytest.mark.docker
def test_container_that_outlives_its_bound_is_killed(image, judge_tool):
    from repro.engines import docker

    engine = docker.DockerEngine(gpus="none", device="cpu")
    with contextlib.closing(engine.client):
        outcomes, ending = attempt(engine, [_hanging_job(judge_tool.results, engine)], 8.0)
    assert not outcomes and ending == "timed out after 8 s and was killed"
    assert not ask_docker("ps", "--all", "--quiet", "--filter", f"label=repro.run={engine.run_id}")
    assert not ask_docker("volume", "ls", "--quiet", "--filter", f"label=repro.run={engine.run_id}")


def test_every_way_in_which_a_connection_breaks_means_that_the_engine_is_gone():
    import requests
    import urllib3

    from repro.engines import docker

    for error in (
        requests.exceptions.ConnectionError("refused"),
        requests.exceptions.ChunkedEncodingError("cut"),
        urllib3.exceptions.ProtocolError("Connection broken: ConnectionResetError(104, 'Connection reset by peer')"),
    ):
        with pytest.raises(EngineGone, match="went away"), docker.guard():
            raise error


@pytest.mark.docker
def test_missing_image_exits_1(image, tool):
    done = tool("run", *DOCKER, REPRO_IMAGE="repro-of-no-one")
    assert done.code == 1
    assert "no image 'repro-of-no-one'" in done.complaint and "make image" in done.complaint


@scenario
def docker_dead_and_live(tool: Tool) -> SimpleNamespace:
    """Two runs in containers with a solution that hangs: one is killed, then `--clean`, then Ctrl-C for the other."""
    put(tool, L1_36=HANG)
    dead, live = (tool.start("evaluate", "L1_36.py", *DOCKER) for _ in range(2))
    for process in (dead, live):
        wait_for("a container", lambda process=process: containers(process), process)
    dead.kill()
    tool.finish(dead)
    found = SimpleNamespace(garbage=garbage(dead), kept=garbage(live))
    found.gc = tool("doctor", "--clean")
    found.dead_after, found.live_after = garbage(dead, "--all"), garbage(live)
    found.stopped = interrupted(tool, live)
    found.left = garbage(live, "--all")
    return found


@pytest.mark.docker
def test_gc_removes_what_dead_runs_left_and_nothing_of_live_ones(docker_dead_and_live):
    assert len(docker_dead_and_live.garbage) == 2, "a killed tool leaves its container and its volume"
    assert docker_dead_and_live.gc.code == 0, docker_dead_and_live.gc.err
    assert not docker_dead_and_live.dead_after
    assert docker_dead_and_live.live_after == docker_dead_and_live.kept and len(docker_dead_and_live.kept) == 2


@pytest.mark.docker
def test_ctrl_c_leaves_no_container_and_no_volume(docker_dead_and_live):
    assert "interrupted: 0 of 1 rows" in docker_dead_and_live.stopped.complaint
    assert not docker_dead_and_live.left


@pytest.mark.docker
def test_gc_minds_no_container_that_goes_meanwhile(image):
    """Live runs and another `--clean` remove theirs at any time, between our listing of a container and our removal."""
    from repro.engines import docker

    labels = ("--label", "repro.run=churn", "--label", "repro.owner=dead-1-1")
    ended = threading.Event()

    def churn():
        while not ended.is_set():
            made = ask_docker("create", "--volume", "/job", *labels, settings.image()).strip()
            subprocess.run(["docker", "rm", "--force", "--volumes", made], capture_output=True, check=False)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            docker.collect_garbage()
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.docker
def test_gc_leaves_what_runs_for_another_machine_and_takes_it_once_it_has_ended(image):
    """An engine may serve several machines; a run of another one cannot be looked up here."""
    from repro.engines import docker

    labels = ("--label", "repro.run=elsewhere", "--label", "repro.owner=0badb007-1-1")
    made = ask_docker("run", "--detach", "--entrypoint", "sleep", *labels, settings.image(), "60").strip()
    name = ask_docker("inspect", "--format", "{{.Name}}", made).strip().removeprefix("/")
    try:
        assert f"container {name}" not in docker.collect_garbage()
        ask_docker("kill", made)
        assert f"container {name}" in docker.collect_garbage()
    finally:
        subprocess.run(["docker", "rm", "--force", made], capture_output=True, check=False)
