"""An agent that means it, in a real sealed container: what it reaches, how it ends, what it leaves.

Also scripted studies in containers with a real judge: by Inspect's agent, and by the real Claude Code CLI.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_study import DONE, MODEL, bash, script
from conftest import ROOT, Tool, ask_docker, manifest, rows, verdict_of
from inspect_ai.log import read_eval_log

from repro import config
from repro.agents.sandbox import SOLUTIONS, variables
from repro.engines import choose
from repro.engines.sealed import Sealed
from repro.engines.submission import MOST_BYTES, MOST_FILES

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
SCRIPTS = ROOT / "tests" / "agent_scripts"
SMOKE = ("--engine", "docker", "--device", "cpu", "--size", "smoke", "--problem", "L1_36")
PROBE = Path(__file__).with_name("agent_probe.py")
SOLVES = f"mkdir -p /job/{SOLUTIONS}; cd /job/{SOLUTIONS}; echo 'class ModelNew: pass' > L1_36_RMSNorm.py; "


@pytest.fixture(scope="module")
def engine(image: None) -> Any:
    return choose("docker", gpus="none", device="cpu", say=lambda _: None)


@pytest.fixture(scope="module")
def claude_code(image: None) -> None:
    """An image in which Claude Code is. One that is named in $REPRO_IMAGE must have it."""
    command = ("run", "--rm", "--entrypoint", "/bin/sh", config.image(), "-c", "command -v claude || true")
    if not ask_docker(*command).strip() and "REPRO_IMAGE" not in os.environ:
        pytest.skip("the image has no Claude Code: make image CLAUDE_CODE=ADDRESS")


@pytest.fixture
def room(engine: Any) -> Iterator[Sealed]:
    """An open sandbox of 1 GB; nothing of it stays."""
    sealed = Sealed(engine, variables("/job", "cpu", "/opt/venv/bin:/usr/bin:/bin"), (1 << 30) / engine.memory / 0.9)
    sealed.open()
    yield sealed
    sealed.close()
    mine = {"label": f"repro.run={engine.run_id}"}
    assert not engine.client.containers.list(all=True, filters=mine) and not engine.client.volumes.list(filters=mine)


def shell(room: Sealed, command: str, limit_s: float = 60.0) -> str:
    done = room.exec(["/bin/bash", "-c", command], limit_s=limit_s)
    return (done.stdout + done.stderr).decode(errors="replace")


def test_what_an_agents_program_reaches(room, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted")
    room.write("files/probe.py", PROBE.read_bytes())
    seen = json.loads(shell(room, "python3 /job/files/probe.py"))
    assert set(seen["interfaces_up"]) <= {"lo"} and not seen["routes"]
    assert seen["dns"] != "done" and all(found != "done" and found["s"] < 1 for found in seen["connect"].values())
    assert (seen["uid"], seen["gid"], seen["groups"]) == (10001, 10001, [10001])
    assert int(seen["CapEff"], 16) == int(seen["CapBnd"], 16) == 0 and seen["NoNewPrivs"] == "1"
    assert seen["Seccomp"] == "2"
    allowed = {path for path, found in seen["write"].items() if found == "done"}
    assert allowed == {"/job/files/x", "/tmp/x"}
    assert not seen["docker_sock"] and not any(seen["masked"].values()) and not seen["solutions_in_reach"]
    for name in ("marked", "raw", "unshare_user", "unshare_net", "mount", "memory_of_1"):
        assert seen[name] != "done", name
    assert "done" not in seen["unmask"] and seen["processes"].count("bash") >= 1, "process 1 lives after every signal"
    assert "sk-planted" not in json.dumps(seen) and not [
        name for name in seen["env"] if "KEY" in name or "TOKEN" in name
    ]
    assert not any(arm in json.dumps([seen["env"], seen["read"]]) for arm in ("with_kb", "placebo", "baseline"))
    assert "sk-planted" not in json.dumps(room._container.attrs)
    facts = room.isolation()
    assert (facts["network"], facts["read_only"], facts["cap_drop"]) == ("none", True, ["ALL"])


def test_names_links_and_endless_files_lead_nowhere(room):
    begin = time.monotonic()
    shell(room, SOLVES + "touch $(printf 'x%.0s' $(seq 252)).py $'\\xff.py' $'a\\nb.py' .hidden.py; mkfifo fifo.py; "
          "ln -s /etc/passwd link.py; mkdir folder.py; for n in 1 2 3 4; do truncate -s 7G z$n.py; done; "
          "truncate -s 1T huge.py; for n in $(seq 3000); do : > f$n.py; done", 120)  # fmt: skip
    room.end()
    found = room.collect(SOLUTIONS)
    assert time.monotonic() - begin < 300
    assert "link.py" not in found.files and "fifo.py" not in found.files and found.cut
    assert all(name.isprintable() for name in found.cut) and len(found.files) <= MOST_FILES
    assert sum(map(len, found.files.values())) <= MOST_BYTES + (1 << 20)


def test_a_link_in_a_folders_place_does_not_choose_what_is_read(room):
    """The engine follows links, and the masks are gone when the container is stopped."""
    shell(room, "mkdir -p /job/files; ln -s /opt/repro/artifacts/oracle /job/files/solutions")
    room.end()
    found = room.collect(SOLUTIONS)
    assert not found.files and found.cut == [SOLUTIONS]


def test_nothing_outlives_the_end_and_bombs_stay_inside(room):
    late = "(trap '' TERM INT HUP; while :; do echo late > late.py; sleep 0.1; done)"
    shell(room, SOLVES + f'setsid bash -c "{late}" >/dev/null 2>&1 & disown; kill -9 1; kill -STOP 1; true')
    said = shell(room, "python3 -c 'x = [bytearray(1 << 28) for _ in range(99)]'; echo alive")
    assert "alive" in said
    shell(room, "bomb() { bomb | bomb & }; bomb; sleep 3", 20)
    room.end()
    first = room.collect(SOLUTIONS)
    time.sleep(1)
    assert room.collect(SOLUTIONS).files == first.files and "L1_36_RMSNorm.py" in first.files


def test_a_command_past_its_limit_is_ended_and_files_go_both_ways(room):
    assert room.exec(["sleep", "60"], limit_s=1).code == 124
    blob = bytes(range(256)) * 4096
    room.write("files/a/b.bin", blob)
    assert room.read("files/a/b.bin") == blob and room.exec(["cat"], blob).stdout == blob
    for path, error in (("files/none", FileNotFoundError), ("files/a", IsADirectoryError)):
        with pytest.raises(error):
            room.read(path)
    with pytest.raises(PermissionError):
        room.write("/etc/x", b"x")


# -- studies


def study(tool: Tool, *words: Any) -> tuple[Path, Any]:
    """Run a study of L1_36, two sittings at once; return its bundle and how the command ended."""
    done = tool("run", *SMOKE, "--no-timing", "--jobs", 2, *words)
    return tool.bundles()[-1], done


@pytest.mark.slow
def test_a_scripted_study_in_containers_is_judged_and_reported(judge_tool):
    scripts = judge_tool.folder / "scripts"
    shutil.copytree(SCRIPTS, scripts)
    shutil.copy(SCRIPTS / "L1_36.with_kb.jsonl", scripts / "L1_36.placebo.jsonl")
    arms = ("baseline", "with_kb", "placebo")
    bundle, done = study(judge_tool, "--agent", "sdk", "--arms", ",".join(arms), "--upstream", f"replay:{scripts}")
    done.succeeded()
    told = rows(bundle)
    assert set(map(verdict_of, told.values())) == {"correct"} and len(told) == 3
    for arm in arms:
        record = json.loads((bundle / f"agents/L1_36/{arm}/0/job.json").read_text())
        assert record["isolation"]["network"] == "none" and not record["isolation"]["interfaces_up"]
        assert record["meter"]["kb"]["calls"] == (0 if arm == "baseline" else 1), arm
    assert manifest(bundle)["status"] == "complete"
    assert "scripted replies, not an agent's result" in (bundle / "report.md").read_text()


# A program of the agent that asks the bridge itself. The port is inspect_swe's first.
ASKS = """
import json, urllib.request, urllib.error
def ask(path, body):
    data = json.dumps(body).encode()
    head = {"content-type": "application/json", "x-api-key": "x", "anthropic-version": "2023-06-01",
            "accept": "application/json, text/event-stream"}
    request = urllib.request.Request("http://127.0.0.1:3001" + path, data, head)
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.read().decode()[:2000]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()[:300]
    except Exception as error:
        return 0, repr(error)
def say(**more):
    return ask("/v1/messages", {"model": "inspect/openai/gpt-4o", "max_tokens": 9,
                                "messages": [{"role": "user", "content": "x"}]} | more)
image = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://192.0.2.1/x.png"}}]}]
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "search_knowledge", "arguments": {"query": "tiles"}}}
print("ASKED" + json.dumps({
    "model": say(), "search": say(tools=[{"type": "web_search_20260318", "name": "web_search"}]),
    "mcp": say(mcp_servers=[{"type": "url", "url": "https://192.0.2.1/mcp", "name": "x"}]),
    "image": say(messages=image), "files": ask("/v1/files", {}), "knowledge": ask("/mcp/knowledge", call)}))
"""


@pytest.mark.slow
def test_the_real_cli_in_a_container_writes_a_kernel_that_is_judged(claude_code, judge_tool):
    bundle, done = study(judge_tool, "--agent", "claude-code", "--arms", "with_kb", "--upstream",
                         f"replay:{SCRIPTS / 'claude_code'}")  # fmt: skip
    done.succeeded()
    assert set(map(verdict_of, rows(bundle).values())) == {"correct"}
    record = json.loads((bundle / "agents/L1_36/with_kb/0/job.json").read_text())
    assert record["meter"]["kb"]["calls"] == 1 and record["agent_version"]


@pytest.mark.slow
def test_what_a_program_gets_from_the_bridge_of_the_real_cli(claude_code, judge_tool):
    """Another model, the provider's own tools, addresses and the knowledge base: none of them leads out of the arm."""
    block = {"type": "tool_use", "name": "Bash", "input": {"command": f"cat > p.py <<'END'\n{ASKS}\nEND\npython3 p.py"}}
    script_file = judge_tool.folder / "attack.jsonl"
    script_file.write_bytes(script(bash("") | {"content": [block]}, DONE))
    bundle, _ = study(judge_tool, "--agent", "claude-code", "--upstream", f"replay:{script_file}")
    (log,) = (bundle / "logs").glob("*.eval")
    samples = read_eval_log(str(log)).samples or []
    assert len(samples) == 2
    for sample in samples:
        text = "\n".join(message.text for message in sample.messages)
        seen = json.loads(text.partition("ASKED")[2].splitlines()[0])
        assert seen["model"][0] == 200 and MODEL in seen["model"][1], "every request goes to the study's model"
        requests = [event for event in sample.events if event.event == "model"]
        assert {event.model for event in requests} == {f"replay/{MODEL}"}
        assert not [tool for event in requests for tool in event.tools if "web" in tool.name.lower()]
        assert seen["image"][0] != 200 and seen["files"][0] != 200, seen
        status, answer = seen["knowledge"]
        refused = status != 200 or "error" in answer.lower() or "not proposed" in answer
        assert refused, "no call without the model's proposal"
        record = json.loads((bundle / f"agents/{sample.id}/job.json").read_text())
        assert record["meter"]["kb"]["calls"] == 0
