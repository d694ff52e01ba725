"""Claude Code as an agent: its stream as recorded, a program that misbehaves in its place, and the real one where it is
installed (`claude` in PATH, or $CLAUDE_CODE_PROGRAM)."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
import gateway_job  # noqa: E402
from agent_job import Job  # noqa: E402
from conftest import ROOT  # noqa: E402

from repro.agents import claude_code  # noqa: E402
from repro.agents.claude_code import ending_of  # noqa: E402
from repro.agents.claude_stream import Lines, Stream  # noqa: E402
from repro.agents.events import Record  # noqa: E402
from repro.knowledge import tools  # noqa: E402
from repro.system.procfs import processes  # noqa: E402

TOOLS = [tool.name for tool in tools.TOOLS]
SOLUTION = "solutions/L1_36_RMSNorm.py"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


def kinds(record: Record) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (record.folder / "events.jsonl").read_text().splitlines()]


# -- the stream


def said(name: str, *content: dict[str, Any], **usage: int) -> dict[str, Any]:
    """An event as the CLI prints it: one content block, the usage of the message's beginning."""
    return {"type": "assistant", "parent_tool_use_id": None, "session_id": "s",
            "message": {"id": name, "model": "claude-opus-5", "role": "assistant", "content": list(content),
                        "stop_reason": None, "usage": {"input_tokens": 5, "output_tokens": 1} | usage}}  # fmt: skip


def heard(call: str, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    block = {"tool_use_id": call, "type": "tool_result", "content": content, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def used(call: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {"x": 1}}


def play(record: Record, *events: Any) -> Stream:
    stream = Stream(record)
    for event in events:
        stream.line(event if isinstance(event, bytes) else json.dumps(event).encode())
    stream.settle()
    return stream


def test_blocks_of_one_message_are_one_turn_and_its_tokens_count_once(record: Record) -> None:
    text = {"type": "text", "text": "hi"}
    play(record, said("m1", text), said("m1", used("t1", "Bash")), heard("t1", "out"), said("m2", text))
    assert record.turns == 2 and record.usage == {"input_tokens": 10, "output_tokens": 2}
    assert record.tool_calls == {"Bash": 1} and record.model_seen == "claude-opus-5"


def test_the_last_word_on_tokens_replaces_the_messages(record: Record) -> None:
    total = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 7}
    play(record, said("m1"), {"type": "result", "subtype": "success", "usage": total})
    assert record.usage == total


def test_calls_of_the_knowledge_base_are_logged_with_their_failures(record: Record) -> None:
    blocks = [{"type": "text", "text": "API error: no connection"}]
    play(record, said("m1", used("t1", "mcp__knowledge__get_page"), used("t2", "mcp__knowledge__search_knowledge")),
         heard("t1", blocks), heard("t2", "no", is_error=True))  # fmt: skip
    found = [(e["name"][16:], e["is_error"], e["soft_error"]) for e in kinds(record) if e["kind"] == "kb"]
    assert found == [("get_page", False, True), ("search_knowledge", True, False)]


def test_lines_before_the_description_and_non_events_are_ignored(record: Record) -> None:
    init = {"type": "system", "subtype": "init", "tools": ["Bash", "mcp__knowledge__get_page"],
            "mcp_servers": [{"name": "knowledge", "status": "failed"}], "claude_code_version": "2.1.330"}  # fmt: skip
    stream = play(record, {"type": "system", "subtype": "ui_invalidate"}, b"not json", b"[1]", b"", init,
                  {"type": "user", "message": {"content": "text"}}, {"type": "assistant"})  # fmt: skip
    assert stream.connected() == "failed" and stream.tools() == ["get_page"]
    assert record.agent_version == "claude-code 2.1.330"


def test_a_message_of_a_subagent_is_no_turn(record: Record) -> None:
    play(record, said("m1"), said("m2") | {"parent_tool_use_id": "t1"})
    assert record.turns == 1


@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 16])
def test_lines_of_any_length_are_put_together_from_chunks_of_any_size(size: int) -> None:
    data = b"a\n\n" + b"x" * 200_000 + b"\nlast"
    lines, found = Lines(), []
    for begin in range(0, len(data), size):
        found += lines.feed(data[begin : begin + size])
    assert found + lines.end() == [b"a", b"", b"x" * 200_000, b"last"] and lines.end() == []


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"subtype": "success", "is_error": False, "result": "done"}, "completed"),
        ({"subtype": "success", "is_error": False, "stop_reason": "refusal"}, "refused"),
        ({"subtype": "error_max_turns", "is_error": True}, "budget"),
        ({"subtype": "success", "is_error": True, "api_error_status": 400,
          "result": "API Error: 400 gateway: the turns are used up: 2 of 2 [budget:turns]"}, "budget"),
        ({"subtype": "success", "is_error": True, "result": "API Error: 400 gateway: over [budget:wall]"}, "timeout"),
        ({"subtype": "success", "is_error": True, "api_error_status": 529, "result": "API Error: 529 busy"},
         "provider_error"),
        ({"subtype": "success", "is_error": True, "result": "API Error: 403 gateway: no [model_denied]"},
         "infra_error"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["crash"]}, "agent_error"),
    ],
)  # fmt: skip
def test_every_last_word_has_its_meaning(result: dict[str, Any], status: str) -> None:
    assert ending_of(result).status == status


# -- a program in its place

INIT = {"type": "system", "subtype": "init", "tools": [], "mcp_servers": [], "claude_code_version": "0"}


def pretend(job: Job, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Puts a shell script in the place of the CLI; $1 and so on are its arguments."""
    folder = job.folder.parent / "programs"
    folder.mkdir()
    program = folder / "claude"
    program.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def echo(event: dict[str, Any]) -> str:
    return f"echo '{json.dumps(event)}'"


SOLVE = f"mkdir -p solutions; echo x > {SOLUTION}"
SUCCESS = {"type": "result", "subtype": "success", "is_error": False, "usage": {"input_tokens": 3}}


def test_the_prompt_comes_by_stdin_and_the_environment_is_our_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "planted")
    show = "cat > prompt; env > env; printf '%s\\n' \"$@\" > argv"
    pretend(job, monkeypatch, SOLVE, show, echo(INIT), echo(SUCCESS))
    job.serve([])
    assert job.run(agent="claude-code", budgets={"wall_s": 60, "turns": 7})["status"] == "completed"
    work = job.folder / "work"
    assert "Write a fast, correct GPU implementation" in (work / "prompt").read_text()
    env = dict(line.split("=", 1) for line in (work / "env").read_text().splitlines() if "=" in line)
    assert env["ENABLE_TOOL_SEARCH"] == "false" and env["ANTHROPIC_API_KEY"] == "repro-agent"
    assert env["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:") and "planted" not in str(env)
    argv = (work / "argv").read_text().split("\n")
    assert {"--bare", "--strict-mcp-config", "bypassPermissions"} <= set(argv) and argv[
        argv.index("--max-turns") + 1
    ] == "7"
    assert "Write a fast" not in str(argv) and json.loads((job.folder / "transcript" / "mcp.json").read_text()) == {
        "mcpServers": {}
    }


def test_a_line_of_a_megabyte_is_read_and_the_raw_stream_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    long = said("m1", {"type": "text", "text": "@"})
    head, tail = json.dumps(long).split("@")
    pretend(job, monkeypatch, SOLVE, echo(INIT), f"printf '%s' '{head}'; head -c 1000000 /dev/zero | tr '\\0' y",
            f"echo '{tail}'", echo(SUCCESS))  # fmt: skip
    job.serve([])
    assert job.run(agent="claude-code")["status"] == "completed"
    assert len(job.events("assistant")[0]["content"][0]["text"]) == 1_000_000
    assert len((job.folder / "transcript" / "claude.jsonl").read_bytes().splitlines()) == 3


def test_a_program_that_ends_without_a_word_is_at_fault(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(job, monkeypatch, echo(INIT), "echo 'it broke' >&2; exit 9")
    job.serve([])
    outcome = job.run(agent="claude-code")
    assert outcome["status"] == "agent_error" and "exit code 9" in outcome["detail"] and "it broke" in outcome["detail"]


@pytest.mark.slow
def test_a_program_that_ignores_signals_is_killed_with_its_children(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that holds its output open cannot hold the session up."""
    monkeypatch.setattr(claude_code, "SIGNALS", tuple((number, 0.5) for number, _ in claude_code.SIGNALS))
    leave = "setsid sleep 300 & echo $! > pids; echo $$ >> pids"
    pretend(job, monkeypatch, "trap '' INT TERM", SOLVE, echo(INIT), leave, "while true; do sleep 1; done")
    job.serve([])
    outcome = job.run(agent="claude-code", budgets={"wall_s": 2})
    assert outcome["status"] == "timeout" and outcome["wall_s"] < 15
    for pid in (job.folder / "work" / "pids").read_text().split():
        assert processes().get(int(pid), (0, "Z"))[1] == "Z"


def test_a_program_that_is_stopped_says_what_it_used(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(job, monkeypatch, "last() {", echo(SUCCESS), "exit 0; }", "trap last INT", SOLVE, echo(INIT),
            "while true; do sleep 0.1; done")  # fmt: skip
    job.serve([])
    outcome = job.run(agent="claude-code", budgets={"wall_s": 1})
    assert outcome["status"] == "timeout" and outcome["usage"] == {"input_tokens": 3}


@pytest.mark.parametrize("state", ["failed", "pending", ""])
def test_a_run_without_its_knowledge_base_is_ended(job: Job, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    servers = [{"name": "knowledge", "status": state}] if state else []
    monkeypatch.setattr(claude_code, "SIGNALS", tuple((number, 0.5) for number, _ in claude_code.SIGNALS))
    pretend(job, monkeypatch, echo(INIT | {"mcp_servers": servers}), "sleep 60")
    job.serve([], mcp=True)
    outcome = job.run(agent="claude-code", arm="with_kb", knowledge="local", expect_tools=["echo", "slow"])
    assert outcome["status"] == "infra_error" and "not connected" in outcome["detail"] and outcome["wall_s"] < 30


def test_a_missing_cli_is_an_error_with_a_remedy(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_code, "PROGRAM", "claude-that-is-not-there")
    job.serve([])
    outcome = job.run(agent="claude-code")
    assert outcome["status"] == "infra_error" and "not installed" in outcome["detail"]


# -- the pin


def test_only_the_pinned_package_is_installed(tmp_path: Path) -> None:
    """With a package of our own making: another hash is refused and leaves nothing, the pinned one is unpacked."""
    shutil.copy(ROOT / "requirements" / "install_claude_code.py", tmp_path)
    program = b"#!/bin/sh\necho 1.2.3 '(Claude Code)'\n"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("package/claude")
        info.size = len(program)
        archive.addfile(info, io.BytesIO(program))
    (tmp_path / "package.tgz").write_bytes(stream.getvalue())
    good = "sha512-" + base64.b64encode(hashlib.sha512(stream.getvalue()).digest()).decode()

    def install(integrity: str, version: str) -> subprocess.CompletedProcess[str]:
        pin = {"package": "p", "version": version, "integrity": integrity}
        (tmp_path / "claude-code.json").write_text(json.dumps(pin))
        command = [sys.executable, tmp_path / "install_claude_code.py", tmp_path / "package.tgz", tmp_path / "bin"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    wrong = install("sha512-" + "A" * 86 + "==", "1.2.3")
    assert wrong.returncode == 2 and "what came is" in wrong.stderr and not (tmp_path / "bin").exists()
    assert "the pin is 9.9.9" in install(good, "9.9.9").stderr
    named = subprocess.run([sys.executable, tmp_path / "install_claude_code.py"], capture_output=True, text=True)
    assert named.stdout == "p@9.9.9\n"
    absent = subprocess.run([*named.args, tmp_path / "none.tgz", tmp_path / "x"], capture_output=True, text=True)
    assert absent.returncode == 1 and "No such file" in absent.stderr and not (tmp_path / "x").exists()
    done = install(good, "1.2.3")
    assert done.returncode == 0 and (tmp_path / "bin" / "claude").read_bytes() == program, done.stderr


# -- the real one


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> str:
    """The version of the CLI, which is then in PATH."""
    program = os.environ.get("CLAUDE_CODE_PROGRAM") or shutil.which("claude")
    if program is None or not Path(program).exists():
        pytest.skip("Claude Code is not installed: no `claude` in PATH, and $CLAUDE_CODE_PROGRAM is not set")
    monkeypatch.setenv("PATH", f"{Path(program).parent}:{os.environ['PATH']}")
    return subprocess.check_output([program, "--version"], text=True).split()[0]


@pytest.mark.parametrize("arm", ["baseline", "with_kb"])
def test_the_real_cli_works_against_a_gateway_that_replays(job: Job, real: str, arm: str) -> None:
    """Its tools run for real, its knowledge tools are in its first request, its tokens are counted once."""
    knows = arm == "with_kb"
    bash = {"type": "tool_use", "id": "toolu_1", "name": "Bash",
            "input": {"command": f"command -v repro && echo 'x = 1' > {SOLUTION}", "description": "x"}}  # fmt: skip
    search = {"type": "tool_use", "id": "toolu_2", "name": "mcp__knowledge__search_knowledge",
              "input": {"query": "row reduction in Triton"}}  # fmt: skip
    lines = [
        {"content": [{"type": "text", "text": "first"}, bash], "usage": {"input_tokens": 100, "output_tokens": 20}}
    ]
    lines += [{"content": [search], "usage": {"input_tokens": 10, "output_tokens": 20}}] if knows else []
    lines += [{"content": [{"type": "text", "text": "done"}], "usage": {"input_tokens": 100, "output_tokens": 20}}]
    with gateway_job.Job(lines, arm=arm, knowledge={"kind": "local" if knows else "none"}) as gateway:
        outcome = job.run(
            agent="claude-code", arm=arm, model=gateway_job.MODEL, socket=str(gateway.socket),
            knowledge="local" if knows else "none", expect_tools=TOOLS if knows else [],
        )  # fmt: skip
        gateway.end()
        meter = json.loads((gateway.journal_dir / "meter.json").read_text())
    assert outcome["status"] == "completed", outcome
    assert outcome["agent_version"] == f"claude-code {real}" and outcome["model_seen"] == gateway_job.MODEL
    assert outcome["turns"] == len(lines) == meter["turns"], (outcome, meter)
    assert outcome["usage"]["output_tokens"] == 20 * len(lines) == meter["tokens"]["output"]
    assert (job.folder / "work" / SOLUTION).read_text() == "x = 1\n"
    asked = [event for event in job.events("kb") if not event["is_error"] and not event["soft_error"]]
    assert len(asked) == knows == meter["kb"]["calls"]


def test_the_real_cli_is_stopped_by_the_gateways_budget(job: Job, real: str) -> None:
    bash = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "true", "description": "x"}}
    with gateway_job.Job([{"content": [bash]}] * 5, budgets={"turns": 2}) as gateway:
        outcome = job.run(agent="claude-code", model=gateway_job.MODEL, socket=str(gateway.socket))
    assert outcome["status"] == "budget" and "budget:turns" in outcome["detail"], outcome


def test_the_real_cli_says_what_it_used_when_it_is_stopped(job: Job, real: str) -> None:
    bash = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "sleep 100", "description": "x"}}
    with gateway_job.Job([{"content": [bash], "usage": {"input_tokens": 5, "output_tokens": 7}}] * 2) as gateway:
        outcome = job.run(agent="claude-code", model=gateway_job.MODEL, socket=str(gateway.socket),
                           budgets={"wall_s": 6})  # fmt: skip
    assert outcome["status"] == "timeout" and outcome["usage"]["output_tokens"] == 7, outcome
