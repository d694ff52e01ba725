"""A session of the judge in a job process: requests over its standard streams; nothing is left when either end dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN_ENV, ROOT, Tool, smoke_problem, until

from repro.engines.base import Engine
from repro.engines.local import LocalEngine
from repro.errors import EngineError, PrerequisiteError
from repro.records.fixture import FixtureRecord
from repro.records.job import Job
from repro.records.options import Options
from repro.studies.evaluation import Submission
from repro.system import jsonio
from repro.system.jsonio import Json

PROBLEM = smoke_problem()
Measured = Callable[[str], Json]


def session_job(fixture: Any, *, trust: str = "audited", timeout_s: float = 60.0) -> Job:
    """The job of a session of L1_36 at smoke size."""
    options = Options(timeout_s=timeout_s, trust=trust).on("cpu").but(timing_budget_s=0.3, max_blocks=12)
    files = {"fixture.json": jsonio.render(fixture.to_json())}
    return Job(id="session", verb="session", problem="L1_36", size="smoke", device="cpu", options=options,
               fixture="fixture.json", files=files, timeout_s=120)  # fmt: skip


def submission(name: str, body: str = "return super().forward(*inputs)", top: bytes = b"") -> Submission:
    """The problem's own Model with this forward."""
    header = "\n\nclass ModelNew(Model):\n    def forward(self, *inputs):\n        "
    return Submission(name, top + PROBLEM.path.read_bytes() + (header + body + "\n").encode(), "ModelNew")


@pytest.fixture
def engine(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    """The local engine, whose jobs have their folders below the test's."""
    monkeypatch.setenv("TMPDIR", str(tool.tmp))
    monkeypatch.setattr("tempfile.tempdir", str(tool.tmp))
    return LocalEngine(gpus="none", device="cpu")


def gone(tool: Tool) -> None:
    """Waits until no process and no temporary folder of a session is there. What outlives them on purpose, leases and
    caches, is not one."""
    until(lambda: not tool.processes() and not [f for f in tool.tmp.glob("repro-*") if "repro-state" not in f.name])


def answers(engine: Engine, fixture: Json, timeout_s: float) -> None:
    """Ask a session of an engine for all that it can do, and for what ends a solution alone."""
    lines = []
    with engine.session(session_job(fixture, timeout_s=timeout_s), lines.append) as session:
        assert session.opened.fingerprint and session.opened.ceilings is None
        good, latin = submission("good"), submission("latin", top=b"# -*- coding: latin-1 -*-\n# \xe9\n")
        wrong, crash = submission("wrong", "return inputs[0] * 0"), submission("crash", "import os; os._exit(1)")
        hang = submission("hang", "while True: pass")
        assert [entry.verdict for entry in session.check([good, wrong])] == ["correct", "incorrect"]
        verdicts = [session.check([each])[0].verdict for each in (crash, hang, latin)]
        assert verdicts == ["error", "timeout", "correct"]
        result = session.time([latin, good], "quick")
        assert result.baselines and result.samples_ms
        assert [entry.solution for entry in result.results] == ["latin", "good"]
        assert all(entry.time_ms and entry.time_ms.n > 0 for entry in result.results)
        with pytest.raises(PrerequisiteError, match="no verdict"):
            session.time([submission("good", "return super().forward(inputs[0])")], "quick")
        assert session.check([good])[0].verdict == "correct", "the session goes on"
    assert any("L1_36" in line for line in lines)


def refuses_a_stale_fixture(engine: Engine, fixture: FixtureRecord) -> None:
    stale = session_job(fixture.model_copy(update={"problem_sha256": "0" * 64}))
    with pytest.raises(PrerequisiteError, match="another version"), engine.session(stale, lambda _: None):
        pytest.fail("it was opened")


def loses_its_job_process(engine: Engine, fixture: FixtureRecord, reason: str) -> None:
    with pytest.raises(EngineError, match=reason), engine.session(session_job(fixture), lambda _: None) as session:
        engine.close()
        session.check([submission("good")])


@pytest.mark.slow
def test_a_session_answers_until_it_is_closed(engine, tool, smoke_fixture):
    answers(engine, smoke_fixture("L1_36"), 5)
    gone(tool)


def in_containers(pid: int, *flags: str) -> list[str]:
    """Owners of a process's containers."""
    words = ["docker", "ps", *flags, "--filter", "label=repro.role=job", "--format", '{{.Label "repro.owner"}}']
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return [owner for owner in found if f"-{pid}-" in owner]


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_session_in_a_container_answers_and_leaves_nothing(image, smoke_fixture):
    from repro.engines.docker import DockerEngine

    engine = DockerEngine(gpus="none", device="cpu")
    with contextlib.closing(engine.client):
        answers(engine, smoke_fixture("L1_36"), 20)
        refuses_a_stale_fixture(engine, smoke_fixture("L1_36"))
        loses_its_job_process(engine, smoke_fixture("L1_36"), "exit code 137")
    filters = ["--quiet", "--filter", f"label=repro.run={engine.run_id}"]
    for kind in (["ps", "--all"], ["volume", "ls"]):
        assert not subprocess.run(["docker", *kind, *filters], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_output_of_a_solution_in_the_judges_process_is_no_answer(engine, tool, smoke_fixture):
    forged = 'print("\\x1eanswer {}", end="", flush=True); return super().forward(*inputs)'
    with engine.session(session_job(smoke_fixture("L1_36"), trust="dev"), lambda _: None) as session:
        assert session.check([submission("prints", forged)])[0].verdict == "correct"
        assert session.check([submission("wrong", "return inputs[0] * 0")])[0].verdict == "incorrect"
    gone(tool)


def test_a_session_that_cannot_be_opened_says_why(engine, tool, smoke_fixture):
    refuses_a_stale_fixture(engine, smoke_fixture("L1_36"))
    gone(tool)


def test_an_engine_without_sessions_says_so():
    class Other(Engine):
        name, device = "other", "cpu"

    with pytest.raises(PrerequisiteError, match="no session runs on the engine other"):
        with Other().session(Job("x", "session"), lambda _: None):
            pytest.fail("it was opened")


@pytest.mark.slow
def test_a_job_process_that_dies_ends_the_session(engine, tool, smoke_fixture):
    loses_its_job_process(engine, smoke_fixture("L1_36"), "SIGKILL")
    gone(tool)


HOST = """
import sys
from pathlib import Path
from repro import engines
from test_engine_session import session_job, submission
from repro.records.fixture import FixtureRecord
job = session_job(FixtureRecord.model_validate_json(Path(sys.argv[1]).read_text()))
with engines.choose(sys.argv[3], gpus="none", device="cpu", say=lambda _: None).session(job, lambda _: None) as session:
    session.check([submission("good")])
    print("checked", flush=True)
    if sys.argv[2] == "busy":
        session.check([submission("hang", "while True: pass")])
    input()
"""


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("state, how", [
    ("idle", signal.SIGKILL), ("idle", signal.SIGINT), ("busy", signal.SIGINT), ("busy", signal.SIGKILL)
])  # fmt: skip
def test_nothing_is_left_when_the_process_that_asked_ends(how, state, tool, smoke_fixture):
    """Killed or by Ctrl-C, while the judge waits for a request or for a solution that hangs."""
    ended(how, state, "local", tool, smoke_fixture("L1_36"), lambda _: len(tool.processes()) > 1)
    gone(tool)


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_no_container_runs_on_when_the_process_that_asked_is_killed(image, tool, smoke_fixture):
    """Its standard input has ended. The ended container is removed as those of every dead command are."""
    pid = ended(signal.SIGKILL, "busy", "docker", tool, smoke_fixture("L1_36"), lambda pid: bool(in_containers(pid)))
    until(lambda: not in_containers(pid))
    from repro.engines.docker import collect_garbage

    collect_garbage()
    assert not in_containers(pid, "--all")


def ended(how: signal.Signals, state: str, engine: str, tool: Tool, fixture: Any, runs: Callable[[int], bool]) -> int:
    """Have a process ask a session for an answer, and end it; return its id. runs: whether its session runs."""
    file = tool.folder / "fixture.json"
    file.write_bytes(jsonio.render(fixture.to_json()))
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    environment = CLEAN_ENV | {"PYTHONPATH": path, "TMPDIR": str(tool.tmp), "REPRO_STATE": str(tool.tmp / "state")}
    command = ["env", "--default-signal=INT", sys.executable, "-c", HOST, str(file), state, engine]
    host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            env=environment, process_group=0, text=True)  # fmt: skip
    with host:
        assert host.stdout is not None and host.stdout.readline() == "checked\n"
        time.sleep(1.0)  # until a solution hangs
        until(lambda: runs(host.pid))
        host.send_signal(how)
        host.wait(120)
    return host.pid
