"""What the test files share: tests of a GPU skip themselves, a fixture is measured once a session, and the command line
as a user starts it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repro.cli import entry
from repro.records.fingerprint import Fingerprint
from repro.system import importing, procfs
from repro.system.jsonio import Json

if TYPE_CHECKING:
    from repro.judge.timing.sampling import Series
    from repro.problems.catalogue import Problem

# Before torch is imported: smoke shapes are too small for two threads, which wait for each other up to 16 times longer
# than the work takes where another process wants a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
collecting = contextlib.ExitStack()
collecting.enter_context(importing.uncollected())  # until all tests are imported: a third of that time
# Whether slow tests that repeat one check over many problems take all of them (CONTRIBUTING.md).
WHOLE = os.environ.get("REPRO_TEST_WHOLE") == "1"
# Slow cases of one property that run otherwise.
ALIKE = 2

ROOT = Path(__file__).resolve().parent.parent
CPU = ("--engine", "local", "--device", "cpu", "--size", "smoke")
# What a user's shell may set must not reach the commands of a test, except the image that is tested. One thread: smoke
# shapes are too small for more.
CLEAN_ENV = {k: v for k, v in os.environ.items() if not k.startswith(("REPRO_", "TRITON_")) or k == "REPRO_IMAGE"}
CLEAN_ENV |= {"OMP_NUM_THREADS": "1"}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager):
    """A GPU machine may lack pytest-timeout; its setting in pyproject.toml must not stop the session there."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds a test may take; ignored without pytest-timeout")


def pytest_configure(config: pytest.Config):
    """Likewise for the mark of that plug-in. Tests of Ctrl-C need a process that heeds it."""
    config.addinivalue_line("markers", "timeout(seconds): how long this test may take")
    # A shell's background job ignores Ctrl-C, and so would what it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def no_gpu() -> str:
    """Why no GPU test can run here, or the empty string."""
    try:
        import torch
    except ImportError as error:
        return f"torch is not installed: {error}"
    return "" if torch.cuda.is_available() else "no NVIDIA GPU: torch.cuda.is_available() is false"


def leave_out_alike(config: pytest.Config, items: list[pytest.Item]):
    """Of the slow cases of a test marked `alike`, keep ALIKE, spread over all: they prove one property."""
    cases = {}
    for item in items:
        if item.get_closest_marker("alike") and item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {id(item) for of in cases.values() for item in set(of) - set(of[:: -(-len(of) // ALIKE)])}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    """Tests marked gpu are skipped with the reason where there is none."""
    if not WHOLE:
        leave_out_alike(config, items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu() if marked else ""
    for item in marked if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    collecting.close()


@functools.cache
def missing_image() -> str:
    """Why nothing can run in containers here, or the empty string."""
    from repro import config as settings

    try:
        command = ["docker", "image", "inspect", settings.image()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no docker client"
    return "" if done.returncode == 0 else f"{done.stderr.strip()}; run: make image"


@pytest.fixture(scope="session")
def image():
    """The image in which containers run. A test marked docker fails without it: deselect the mark instead."""
    if missing_image():
        pytest.fail(missing_image())


def shipped_benchmark(stack: str) -> Path:
    """The newest published bundle of this stack that measured the kernels that ship with the project."""
    bundles = sorted((ROOT / "artifacts" / "results" / stack).glob("*-benchmark/manifest.json"))
    return next(file.parent for file in reversed(bundles) if strict_json(file.read_text())["parameters"]["shipped"])


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Makes a folder once for all processes of pytest-xdist: `once(name, fill)` is the folder that `fill` filled."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name, fill):
        folder = shared / f"once-{name}"
        with (shared / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "filled").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                (folder / "filled").touch()
        return folder

    return made


def kernel_files(folder: Path, sources: dict[str, str]) -> list[tuple[str, Path, str]]:
    """Kernels, name -> source, in files of their own below a folder, as the judge takes solutions."""
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)
    return [(name, folder / f"{name}.py", "kernel_function") for name in sources]


def smoke_problem(problem_id: str = "L1_36", dtype: str = "float32") -> Problem:
    """A shipped problem at smoke size."""
    from repro.problems import catalogue

    return catalogue.load(problem_id, size="smoke", dtype=dtype)


@pytest.fixture(scope="session")
def smoke_fixture(once):
    """The fixture of a problem (`L1_36`, `L1_36@bf16`) at smoke size on the CPU: measured once, not to be changed."""

    @functools.cache
    def measured(key):
        import torch

        from repro.fixtures import calibration
        from repro.records.fixture import Fixture
        from repro.system import jsonio

        def fill(folder):
            built = calibration.build(smoke_problem(key), torch.device("cpu"))
            (folder / "fixture.json").write_text(jsonio.dumps(built.to_json()))

        return Fixture.model_validate(json.loads((once(key, fill) / "fixture.json").read_text()))

    return measured


def attempt(engine, jobs: list[Any], timeout_s: float) -> tuple[list[Any], str]:
    """The outcomes of jobs that are run once, and how their process ended."""
    found = []
    running = engine._attempt(jobs, timeout_s, lambda _: None)
    while True:
        try:
            found.append(next(running))
        except StopIteration as end:
            return found, end.value


@dataclass(frozen=True)
class Done:
    """A command that ended: exit code and what it printed."""

    code: int
    out: str
    err: str

    def succeeded(self) -> None:
        """Assert that it ended well, or show what it printed."""
        assert self.code == 0, self.err

    @property
    def complaint(self) -> str:
        """The one line, its last, in which the tool says why it did not do all its work."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("repro")]
        assert len(lines) == 1 and self.err.splitlines()[-1] == lines[0], self.err
        return lines[0]


class Tool:
    """`python entrypoint.py` in a folder of its own: working folder, results and temporary files lie below it."""

    def __init__(self, folder: Path):
        self.folder, self.results, self.tmp = folder, folder / "results", folder / "tmp"
        self.tmp.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """What names its folders to a command."""
        return {"REPRO_RESULTS": str(self.results), "REPRO_STATE": str(self.tmp / "state"), "TMPDIR": str(self.tmp)}

    def start(self, *args: object, ignoring: str = "", **env: str) -> subprocess.Popen[str]:
        """Starts a command as the leader of its own process group, as an interactive shell does. ignoring: a signal
        that it ignores."""
        # a shell's background jobs, of which this session may be one, ignore Ctrl-C, and their children inherit that
        signals = ["--default-signal=INT", *([f"--ignore-signal={ignoring}"] if ignoring else [])]
        command = ["env", *signals, sys.executable, str(ROOT / "entrypoint.py"), *map(str, args)]
        return subprocess.Popen(
            command, cwd=self.folder, env=CLEAN_ENV | self.environment() | env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 240) -> Done:
        """Waits for a command; one that takes too long is killed."""
        with process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                raise
        return Done(process.returncode, out, err)

    def __call__(self, *args: object, ignoring: str = "", **env: str) -> Done:
        """Runs a command to its end."""
        return self.finish(self.start(*args, ignoring=ignoring, **env))

    def within(self, *args: object, **env: str) -> Done:
        """Runs a command to its end in this process, where a start of Python and its imports would take most of the
        time. Only for verbs that judge nothing."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(self.folder)
            for name in os.environ.keys() - CLEAN_ENV.keys():
                patch.delenv(name)
            for name, value in (self.environment() | env).items():
                patch.setenv(name, value)
            code = entry.main([*map(str, args)])
        return Done(code, out.getvalue(), err.getvalue())

    def json(self) -> Any:
        """What the last command wrote by `--json out.json`."""
        return strict_json((self.folder / "out.json").read_text())

    def bundles(self) -> list[Path]:
        """The bundles of the results folder, oldest first."""
        return sorted(path.parent for path in self.results.glob("*/manifest.json"))

    def pids(self) -> dict[int, str]:
        """Process id -> command line of what works below this folder: the tool, its jobs, their workers."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            text = b""
            for name in ("cmdline", "environ"):  # a judge's environment cannot be read
                with contextlib.suppress(OSError):
                    text += (process / name).read_bytes()
            if str(self.tmp).encode() in text:
                with contextlib.suppress(OSError):
                    command = (process / "cmdline").read_bytes()
                    found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def processes(self) -> list[str]:
        """Their command lines."""
        return list(self.pids().values())


def wait_for(
    what: str, condition: Callable[[], Any], process: subprocess.Popen[str] | None = None, seconds: float = 120.0
):
    """Waits until the condition holds and returns its value; fails where the process ends before."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: the command ended before with {process.communicate()}")
        time.sleep(0.05)
    return value


def until(condition: Callable[[], Any], seconds: float = 60.0):
    """Waits until the condition holds and returns its value."""
    return wait_for("what the test waits for", condition, seconds=seconds)


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own at this folder; skips where the machine refuses to mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not reaped does not."""
    return procfs.processes().get(pid, (0, "Z"))[1] != "Z"


def ask_docker(*args: object) -> str:
    """What the docker client prints."""
    return subprocess.run(["docker", *map(str, args)], capture_output=True, text=True, check=True).stdout


def series(device_ms: list[float], latency_ms: list[float] | None = None, *, way_ms: float = 0.1) -> Series:
    """One variant's samples: gated calls behind a gate of 0.1 ms, and open ones, a third as many where not given.
    way_ms: what the judge's clock sees beyond the gate and the device."""
    from repro.judge.timing.sampling import Sample, Series

    gated = [Sample(t, t + 0.1, t + 0.1 + way_ms, 0.1) for t in device_ms]
    latency = device_ms[: len(device_ms) // 3] if latency_ms is None else latency_ms
    return Series(gated, [Sample(t, t, t + way_ms, 0.0) for t in latency])


def strict_json(text: str):
    """A JSON text as the standard knows it: without NaN and Infinity."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def manifest(bundle: Path) -> Json:
    """The manifest of a bundle."""
    return strict_json((bundle / "manifest.json").read_text())


def rows(bundle: Path) -> dict[str, Json]:
    """The last row of every id in a bundle, in the order of their first ones."""
    return {row["row"]: row for row in map(strict_json, (bundle / "rows.jsonl").read_text().splitlines())}


def verdict_of(row: Json) -> str:
    """The verdict of a row of a bundle, of its first solution."""
    return row["result"]["results"][0]["verdict"]


@pytest.fixture(scope="session")
def smoke_results(once):
    """A results folder with what `repro fixtures` leaves for L1_36 and L1_82 at smoke size on the CPU: to be copied."""

    def fill(folder):
        done = Tool(folder)("fixtures", *CPU, "--problem", "L1_36", "--problem", "L1_82")
        done.succeeded()

    return once("smoke", fill) / "results"


def fresh(folder: Path, smoke_results: Path) -> Tool:
    """The command line with the smoke fixtures in a folder that is to have nothing else."""
    tool = Tool(folder)
    shutil.copytree(smoke_results / "fixtures", tool.results / "fixtures")
    return tool


@pytest.fixture
def open_folder():
    """A folder that every user may enter and write to; those of pytest are for one user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder


@pytest.fixture
def tool(tmp_path):
    """The command line in an empty folder."""
    return Tool(tmp_path)


@pytest.fixture
def judge_tool(tool, smoke_results):
    """The command line with the smoke fixtures in its results folder."""
    return fresh(tool.folder, smoke_results)


@pytest.fixture(scope="session")
def fake_gpu(tmp_path_factory):
    """The environment in which NVML's binding finds tests/nvml/fake.c in the place of a driver."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for a library that answers as NVML does")
    folder = tmp_path_factory.mktemp("nvml")
    source = ROOT / "tests" / "nvml" / "fake.c"
    command = [compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source]
    subprocess.run(command, check=True, capture_output=True)
    return {"LD_LIBRARY_PATH": str(folder)}


def small_fingerprint(**values) -> Fingerprint:
    """A fingerprint of these values alone."""
    found = {name: {"value": v, "source": "test", "status": "ok", "class": "I"} for name, v in values.items()}
    return Fingerprint.model_validate({
        "schema_version": 1, "taken": "now", "device": "cpu", "sku_id": "0" * 12, "fingerprint_id": "f" * 12,
        "off_pin": {}, "values": found,
    })  # fmt: skip
