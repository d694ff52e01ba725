"""The standby of a sitting: an agent's commands run in forks of one process, and end as they would in new ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
from agent_job import Job, call, message, text  # noqa: E402
from conftest import CLEAN_ENV, ROOT, alive, until  # noqa: E402

from repro import config  # noqa: E402
from repro.agents import session, task  # noqa: E402
from repro.agents.standby import SOCKET, Standby  # noqa: E402
from repro.fixtures import store  # noqa: E402
from repro.problems import catalogue  # noqa: E402
from repro.system import jsonio  # noqa: E402
from repro.system.procfs import processes  # noqa: E402

PROBLEM = catalogue.load("L1_36", size="smoke")
COMMAND = "repro evaluate {} --problem L1_36 --trust dev --engine local --device cpu --size smoke --no-timing"
Measured = Callable[[str], dict[str, Any]]


def solution(body: str = "return super().forward(*inputs)", top: str = "") -> str:
    """The problem's own Model with this forward."""
    new = f"class ModelNew(Model):\n    def forward(self, *inputs):\n        {body}\n"
    return f"{top}\n{PROBLEM.path.read_text()}\n\n{new}"


# A solution that writes which processes it runs below, then what `then` says.
ANCESTORS = """
import os
def ancestors(pid):
    parent = int(open(f"/proc/{{pid}}/stat").read().rsplit(")", 1)[1].split()[1])
    return [pid, *(ancestors(parent) if parent > 1 else [])]
with open({file!r} + "~", "w") as stream:
    print(*ancestors(os.getpid()), file=stream)
os.rename({file!r} + "~", {file!r})
{then}
"""
HANG = "import time; time.sleep(600)"


def give_fixture(folder: Path, measured: Any) -> None:
    """Put the problem's fixture where a sitting has it."""
    file = store.path(Path(), PROBLEM, "cpu")
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(jsonio.render(measured.to_json()))


def of_folder(folder: Path) -> list[str]:
    """Command lines and folders of living processes of a sitting: they have its folder in either."""
    found = []
    for pid, (_, state) in processes().items():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z" and pid != os.getpid() and str(folder) in line + os.readlink(f"/proc/{pid}/cwd"):
                found.append(f"{pid} {line}")
        except OSError:
            continue
    return found


class Sitting:
    """The folder, environment and standby of a sitting, without an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = {"job": "c1", "agent": "sdk", "arm": "baseline", "model": "m", "problems": ["L1_36"], "size": "smoke",
                 "device": "cpu"}  # fmt: skip
        (folder / task.TASK).write_text(json.dumps(facts))
        self.task = task.read(folder)
        self.env = session.prepare(self.task)
        self.standby = Standby(folder)
        self.standby.open(self.env)

    @property
    def process(self) -> int:
        """The process id of the standby, 0 before its first command."""
        return self.standby._process.pid if self.standby._process else 0

    def start(self, command: str, **env: str) -> subprocess.Popen[str]:
        """Start a command of the agent's shell."""
        whole = ["env", "--default-signal=INT", "/bin/bash", "-c", f"exec {command}"]
        return subprocess.Popen(
            whole, cwd=self.task.work, env=self.env | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, started: subprocess.Popen[str], standby: bool = True) -> tuple[int, str, str]:
        """Wait for a command, as the session does. Return its exit code and output."""

        def ended() -> bool:
            if standby:
                self.standby.tend()
            return started.poll() is not None

        with started:
            until(ended, 120)
            assert started.stdout is not None and started.stderr is not None
            return started.returncode, started.stdout.read(), started.stderr.read()

    def run(self, command: str, **env: str) -> tuple[int, str, str]:
        """Run a command of the agent's shell to its end."""
        return self.finish(self.start(command, **env))

    def write(self, name: str, source: str) -> str:
        """Write a solution; return the command that judges it."""
        (self.task.solutions / f"{name}.py").write_text(source)
        return COMMAND.format(f"solutions/{name}.py") + f" --json {name}.json"

    def wait_for(self, file: Path) -> list[int]:
        """Wait until a solution has written which processes it runs below."""

        def there() -> bool:
            self.standby.tend()
            return file.exists()

        until(there)
        return [int(pid) for pid in file.read_text().split()]


@pytest.fixture
def sitting() -> Iterator[Sitting]:
    folder = Path(tempfile.mkdtemp(prefix="repro-test-"))  # the path of a socket must be short
    made = Sitting(folder)
    yield made
    made.standby.close()
    try:
        until(lambda: not of_folder(folder), 20)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def judging(sitting: Sitting, smoke_fixture: Measured) -> Sitting:
    """A sitting with the fixture of its problem."""
    give_fixture(sitting.folder, smoke_fixture("L1_36"))
    return sitting


@pytest.mark.slow
def test_commands_run_in_forks_of_one_process_that_the_first_one_starts(judging: Sitting, tmp_path: Path) -> None:
    assert judging.process == 0
    found = []
    for at in range(3):
        file = tmp_path / f"{at}"
        command = judging.write("looks", solution(top=ANCESTORS.format(file=str(file), then="")))
        code, _, err = judging.run(command, **({"REPRO_STANDBY": ""} if at == 2 else {}))
        assert code == 0, err
        found.append([int(pid) for pid in file.read_text().split()])
    first, second, cold = found
    assert judging.process in first and judging.process in second and judging.process not in cold
    assert first[0] != second[0], "each is judged in a process of its own"
    assert json.loads((judging.task.work / "looks.json").read_text())["results"][0]["verdict"] == "correct"


CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
CASES = {
    "correct": (solution(), 0),
    "incorrect": (solution("return inputs[0] * 0"), 0),
    "raises": (solution("raise RuntimeError('no')"), 0),
    "syntax": ("class ModelNew(:\n", 0),
    "exits": (solution("import os; os._exit(7)"), 2),
    "crashes": (solution(CRASH), 2),
    "strict": (solution("return inputs[0] * 0"), 3),
}


def _plain(output: str) -> str:
    """An output without what differs from one run to the next: names of bundles, times, distances, margins, and which
    of the trials, whose order is random, came first."""
    output = re.sub(r"\d{8}T\d{6}Z-[a-z]+(-\d+)?", "BUNDLE", output)
    output = re.sub(r"\bon [^:;()]+[:;]", "on inputs;", " ".join(output.split()))
    return re.sub(r"[─ ]+", " ", re.sub(r"\b\d+(\.\d+)?(e[-+]\d+)?\b|/tmp/\S+", "N", output))


@pytest.mark.slow
def test_a_fork_gives_the_verdict_words_and_exit_code_of_a_new_process(judging: Sitting) -> None:
    """In one standby, so a solution that crashes leaves the next one alone."""
    cold, warm = (_judge_cases(judging, **standby) for standby in ({"REPRO_STANDBY": ""}, {}))
    for name, (_, code) in CASES.items():
        assert warm[name] == cold[name] and cold[name]["code"] == code, name
    assert judging.standby._starts == 1


def _judge_cases(judging: Sitting, **env: str) -> dict[str, dict[str, Any]]:
    """What each of CASES gets, as far as it is equal from one run to the next."""
    found = {}
    for name, (source, _) in CASES.items():
        command = judging.write("solution", source) + (" --strict" if name == "strict" else "")
        code, out, err = judging.run(command, **env)
        (entry,) = json.loads((judging.task.work / "solution.json").read_text())["results"]
        facts = {key: entry.get(key) for key in ("verdict", "precision_class", "labels", "trust")}
        codes = {each["code"] for each in entry["reasons"]}
        found[name] = {"code": code, "out": _plain(out), "err": _plain(err), "facts": facts, "codes": codes}
    return found


@pytest.mark.slow
def test_a_hang_that_is_stopped_costs_itself_alone(judging: Sitting, tmp_path: Path) -> None:
    """By the signals of `timeout` and Ctrl-C as in a new process, and when the shell's processes are killed."""
    endings = []
    for at, (standby, number) in enumerate(
        [({"REPRO_STANDBY": ""}, signal.SIGTERM), ({}, signal.SIGTERM), ({}, signal.SIGINT), ({}, signal.SIGKILL)]
    ):
        file = tmp_path / f"{at}"
        command = judging.write("hangs", solution(top=ANCESTORS.format(file=str(file), then=HANG)))
        started = judging.start(command, **standby)
        pids = judging.wait_for(file)
        assert (judging.process in pids) == (not standby)
        started.send_signal(number)
        code, _, err = judging.finish(started)
        endings.append((code, _plain(err)))
        until(lambda pids=pids: not alive(pids[0]), 20)
    cold, by_term, by_int, killed = endings
    assert cold == by_term == by_int and cold[0] == 130 and "interrupted" in cold[1]
    assert killed[0] == -signal.SIGKILL
    before = judging.process
    assert judging.run(judging.write("good", solution()))[0] == 0 and judging.process == before
    until(lambda: [line for line in of_folder(judging.folder) if not line.startswith(f"{before} ")] == [], 20)


@pytest.mark.slow
def test_a_standby_that_the_agent_kills_starts_again(judging: Sitting, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    hang = judging.write("hangs", solution(top=ANCESTORS.format(file=str(file), then=HANG)))
    started = judging.start(hang)
    pids = judging.wait_for(file)
    before = judging.process
    os.kill(before, signal.SIGTERM)
    assert judging.finish(started)[0] == -signal.SIGKILL
    until(lambda: not alive(pids[0]), 20)
    assert judging.run(judging.write("good", solution()))[0] == 0
    assert judging.process not in (0, before)


@pytest.mark.slow
def test_a_command_with_other_settings_of_libraries_gets_a_new_process(judging: Sitting) -> None:
    code, out, err = judging.run(judging.write("good", solution()) + " -v", OMP_NUM_THREADS="3")
    assert code == 0 and "1 of 1 correct" in out
    assert "repro: in a new process: OMP_NUM_THREADS is not as at the start" in err


# -- quick: nothing is judged


def test_without_a_standby_a_command_runs_in_a_new_process_and_says_so(sitting: Sitting) -> None:
    sitting.standby.close()
    assert not (sitting.folder / SOCKET).exists()
    code, _, err = sitting.run("repro evaluate nowhere.py -v")
    assert code == 1 and err.startswith("repro: in a new process: the sitting's standby does not answer\n")
    assert "no such file or folder: nowhere.py" in err
    quiet = sitting.run("repro evaluate nowhere.py")
    assert quiet[0] == 1 and "new process" not in quiet[2]


def test_a_standby_that_ends_by_itself_is_given_up(sitting: Sitting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "COMMAND", (sys.executable, "-c", "raise SystemExit(2)"))
    sitting.standby.tend()
    assert sitting.process == 0, "no command was waiting"
    code, _, err = sitting.run("repro evaluate nowhere.py -v")
    assert code == 1 and "new process" in err and "nowhere.py" in err
    assert not (sitting.folder / SOCKET).exists()


def test_a_path_too_long_for_a_socket_leaves_new_processes(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    standby = Standby(folder)
    standby.open({})
    standby.tend()
    standby.close()
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_connections_that_ask_nothing_harm_no_command(sitting: Sitting) -> None:
    """One that stays open, one that sends no request, and one that closes at once."""
    silent, strange, gone = (socket.socket(socket.AF_UNIX) for _ in range(3))
    with silent, strange:
        for each in (silent, strange, gone):
            each.connect(str(sitting.folder / SOCKET))
        strange.sendall(b"nonsense" * 10)
        gone.close()
        code, _, err = sitting.run("repro evaluate nowhere.py -v")
    assert code == 1 and "no such file or folder: nowhere.py" in err and "new process" not in err


# -- whole sittings


@pytest.fixture
def job(tmp_path: Path, smoke_fixture: Measured) -> Iterator[Job]:
    made = Job(tmp_path)
    shutil.rmtree(made.folder)
    made.folder = Path(tempfile.mkdtemp(prefix="repro-test-"))
    made.pid_file = made.folder / "server.pid"
    give_fixture(made.folder, smoke_fixture("L1_36"))
    (made.folder / "work" / "solutions").mkdir(parents=True)
    yield made
    made.close()
    shutil.rmtree(made.folder, ignore_errors=True)


def _judged(job: Job, name: str, source: str) -> dict[str, Any]:
    """A call of the agent that judges a solution in its working folder."""
    (job.folder / "work" / "solutions" / f"{name}.py").write_text(source)
    return call("bash", command=COMMAND.format(f"solutions/{name}.py") + " -v")


def _begin(job: Job, steps: list[dict[str, Any]], **changes: Any) -> subprocess.Popen[str]:
    job.serve(steps)
    job.write(**changes)
    command = ["env", "--default-signal=INT", *config.COMMAND, "agent", str(job.folder)]
    return subprocess.Popen(command, cwd=ROOT, env=CLEAN_ENV, stderr=subprocess.PIPE, text=True)


def _left(job: Job) -> list[str]:
    return [line for line in of_folder(job.folder) if "agent_gateway" not in line]


@pytest.mark.slow
def test_a_sitting_judges_in_one_standby_and_leaves_nothing(job: Job, tmp_path: Path) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    calls = [_judged(job, f"s{file.name}", solution(top=ANCESTORS.format(file=str(file), then=""))) for file in files]
    process = _begin(job, [message(calls[0]), message(calls[1]), message(text("done"))], budgets={"wall_s": 120})
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    results = [event["text"] for event in job.events("tool_result")]
    assert len(results) == 2 and all("1 of 1 correct" in each and "new process" not in each for each in results)
    first, second = ([int(pid) for pid in file.read_text().split()] for file in files)
    shared = {*first} & {*second}
    assert process.pid in shared and len(shared - {process.pid, os.getpid(), os.getppid()}) >= 1
    assert second.index(process.pid) == first.index(process.pid) and second[first.index(process.pid) - 1] in shared
    assert not (job.folder / SOCKET).exists() and until(lambda: _left(job) == [], 20)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "wall"])
def test_nothing_is_left_of_a_sitting_that_is_ended_while_it_judges(job: Job, tmp_path: Path, how: str) -> None:
    file = tmp_path / "pids"
    hang = _judged(job, "hangs", solution(top=ANCESTORS.format(file=str(file), then=HANG)))
    process = _begin(job, [message(hang)], budgets={"wall_s": 25 if how == "wall" else 300})
    until(file.exists)
    assert len(_left(job)) >= 4, "session, shell, standby, command and job"
    if how != "wall":
        process.send_signal(signal.Signals[how])
    process.communicate(timeout=60)
    until(lambda: _left(job) == [], 20)
    assert how == "SIGKILL" or not (job.folder / SOCKET).exists()
