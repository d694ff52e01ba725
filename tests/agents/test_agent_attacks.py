"""An agent that means it, in a real container beside a real gateway: what it leaves, how it ends, what it buys by that.

Its replies come from a script; what the script does is what a program of any agent could do.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from conftest import ROOT

from repro import config
from repro.engines import agent as rules
from repro.engines.agent import MOST_FILES, AgentJob, AgentOutcome, Basket
from repro.engines.agent_docker import AGENT_FOLDER, Room
from repro.engines.resources import Lease
from repro.gateway.config import KB_TOOLS
from repro.studies.agent import sittings
from repro.studies.agent.sittings import Verdict
from repro.system import jsonio

LABEL = "repro.test-attack"
MODEL = "claude-opus-4-5-20251101"
NAME = "L1_36_RMSNorm.py"
SOLUTIONS = f"{AGENT_FOLDER}/{rules.SOLUTIONS}"
SOLVES = f"printf 'class ModelNew:\\n    pass\\n' > {SOLUTIONS}/{NAME}; "
END = {"content": [{"type": "text", "text": "Scripted reply: done."}], "stop_reason": "end_turn"}


@pytest.fixture(scope="module")
def no_volume_stays(image: None) -> Iterator[None]:
    """Removes the volumes of a test that failed."""
    yield
    prune = ["docker", "volume", "prune", "-f", "--filter", f"label={LABEL}={os.getpid()}"]
    subprocess.run(prune, capture_output=True, check=False)


def in_containers(test: Any) -> Any:
    """Marks a test whose agent runs in a container."""
    return pytest.mark.docker(pytest.mark.timeout(600)(pytest.mark.usefixtures("no_volume_stays")(test)))


def bash(command: str) -> dict[str, Any]:
    """A reply that calls the agent's bash."""
    block = {"type": "tool_use", "name": "bash", "input": {"command": command}}
    return {"content": [block], "stop_reason": "tool_use", "usage": {"input_tokens": 100, "output_tokens": 10}}


def attack(*commands: str, arm: str = "baseline", memory: int = 4 << 30, wall_s: float = 120.0) -> AgentOutcome:
    """What is left of a job whose agent runs these commands, one a turn."""
    knowledge = "none" if arm == "baseline" else "local"
    common = {"schema_version": 1, "job": "c", "arm": arm, "model": MODEL, "budgets": {"wall_s": wall_s}}
    upstream = {"kind": "replay", "script": "replay.jsonl"}
    gateway = common | {"upstream": upstream, "knowledge": {"kind": knowledge}}
    agent = common | {
        "agent": "sdk", "problems": ["L1_36"], "size": "smoke", "device": "cpu", "mode": "problem", "relay_port": 8080,
        "knowledge": knowledge, "expect_tools": list(KB_TOOLS) if arm != "baseline" else [], "isolation": "container",
    }  # fmt: skip
    script = "".join(json.dumps(line) + "\n" for line in [*map(bash, commands), END]).encode()
    engine = docker.from_env(timeout=60)
    prefix = f"repro-attack-{os.getpid()}"
    room = Room(engine, config.image(), prefix, {LABEL: str(os.getpid())}, memory, Lease(), threading.Event())
    left = room.run(AgentJob("c", gateway, agent, {}, script, False, wall_s), {}, lambda line: None)
    assert not engine.containers.list(all=True, filters={"label": f"{LABEL}={os.getpid()}"})
    return left


def said(left: AgentOutcome) -> str:
    """What the commands printed."""
    lines = map(json.loads, left.agent_files["events.jsonl"].splitlines())
    return "\n".join(str(line["text"]) for line in lines if line["kind"] == "tool_result")


def kind(found: Verdict) -> tuple[str, str]:
    return found.status, found.klass


# -- how it ends

# What broke the session from within was an infrastructure failure, which bought another attempt.
BREAKS = {
    "a signal": "kill -TERM 1; sleep 5",
    "a folder in the outcome's place": "mkdir -p /job/agent-outcome.json",
    "a folder that cannot be written": "chmod 555 /job",
    "a log that cannot be written": "rm -f /job/events.jsonl; ln -s /dev/full /job/events.jsonl",
    "descriptors closed": "python -c 'import os; [os.kill(1, n) for n in (1, 3, 6, 10, 12, 15)]'; sleep 5",
}


@in_containers
@pytest.mark.parametrize("name", BREAKS)
def test_an_agent_that_breaks_its_session_gains_no_attempt(name: str) -> None:
    left = attack(SOLVES + BREAKS[name])
    found = sittings.judge(left)
    assert found.klass == "agent", found
    assert f"work/solutions/{NAME}" in left.agent_files, "and what it had is judged"


@in_containers
def test_the_session_is_out_of_an_agents_reach() -> None:
    """It is the first process; no process beside it kills, stops or reads it, and it names no key."""
    left = attack(
        "kill -9 1; kill -STOP 1; sleep 1; head -c 9 /proc/1/mem; cat /proc/1/environ; "
        "python -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))'; ls /proc/1/fd; cat /proc/1/comm",
        SOLVES,
    )
    assert sittings.judge(left).status == "completed", left
    text = said(left)
    assert "-1" in text.splitlines() and text.count("Permission denied") >= 2, text


FORGED = {
    "deep": b'{"status": "completed", "detail": "x", "usage": ' + b'{"a":' * 800 + b"1" + b"}" * 801,
    "wide": json.dumps({"status": "completed", "tool_calls": {str(n): 1 for n in range(9999)}}).encode(),
    "long": json.dumps({"status": "completed", "detail": "d" * 999_999, "model_seen": "m" * 99_999}).encode(),
    "of other kinds": json.dumps(
        {"status": ["completed"], "detail": {"a": 1}, "turns": "many", "usage": 3, "preflight": {"a": {"b": 1}}}
    ).encode(),
    "for a terminal": json.dumps({"status": "completed", "detail": "\x1b]0;owned\x07\x9b31m\u202egnp"}).encode(),
    "endless": b'{"status": "completed", "turns": 1e999, "wall_s": ' + b"9" * 4000 + b"}",
    "no JSON": b"\xff\xfe{",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_outcome_harms_no_record(name: str) -> None:
    """One nested 800 deep ended the whole study, for what was read could not be written."""
    left = AgentOutcome("c", agent_files={rules.OUTCOME: FORGED[name]})
    left.gateway_files[rules.METER] = b'{"turns": 2}'
    found = sittings.judge(left)
    assert found.klass == "agent"
    text = jsonio.render({"outcome": found.outcome.to_json(), "detail": found.detail}).decode()
    assert len(text) < 20_000 and "\\u001b" not in text and "\\u202e" not in text and "\\u009b" not in text


# -- what it leaves


@in_containers
def test_names_and_links_of_an_agent_lead_nowhere() -> None:
    """A name of 255 bytes could not be written into the bundle, which ended the study."""
    work = f"cd {SOLUTIONS}; "
    left = attack(
        SOLVES + work + "touch $(printf 'x%.0s' $(seq 252)).py $'\\xff.py' $'a\\nb.py' .hidden.py ./-x.py; "
        "mkfifo fifo.py; "
        "ln -s /etc/passwd link.py; ln -s /opt/repro/artifacts/oracle/L1_82_conv_depthwise_2D.py "
        "L1_82_conv_depthwise_2D.py; "
        f"ln {NAME} hard.py; mkdir folder.py; ln -s /gateway ../../transcript/gw; ln -s / ../../transcript/root; "
        "touch $'/job/transcript/\\x1b[31m'"
    )
    assert sittings.judge(left).status == "completed"
    kept = {name for name in left.agent_files if name.startswith("work/")}
    assert {f"work/solutions/{NAME}", "work/solutions/hard.py"} >= kept and len(kept) >= 1, kept
    assert not [name for name in left.agent_files if name.startswith("transcript/")]
    assert len(left.cut) >= 5 and all(name.isprintable() for name in left.cut)


@in_containers
def test_a_link_in_a_folders_place_does_not_choose_what_is_read() -> None:
    """The engine follows links in the path that it is asked for, and the masks are gone when the agent is."""
    place = "/opt/repro/artifacts/oracle"
    left = attack(f"mv /job/work /job/other; ln -s {place} /job/work; ls -la /job/work")
    assert "work/solutions" in left.cut and not sittings.solutions(left)
    assert sittings.judge(left).klass == "agent"


@in_containers
def test_files_without_end_are_read_in_bounded_time_and_space() -> None:
    """A file of a terabyte that holds nothing was read to its end."""
    begin = time.monotonic()
    left = attack(
        SOLVES + f"cd {SOLUTIONS}; for n in 1 2 3 4; do truncate -s 8G z$n.py; done; truncate -s 1T huge.py; "
        "truncate -s 8G /job/transcript/t; yes | head -c 300M >> /job/events.jsonl",
        "mkdir /job/transcript/many; cd /job/transcript/many; "
        "python -c \"for n in range(20000): open(str(n), 'w').close()\"; " + f"ls -s {SOLUTIONS}",
    )
    assert time.monotonic() - begin < 120
    assert sittings.solutions(left)[NAME] and left.cut
    assert len(left.agent_files) <= MOST_FILES + 2
    assert sum(map(len, left.agent_files.values())) <= rules.JOB_BYTES + (1 << 20)


@in_containers
def test_nothing_of_an_agent_outlives_it() -> None:
    """What it leaves running writes no solution after the end, forged or not."""
    late = f"(trap '' TERM INT HUP; sleep 4; while :; do echo late > {SOLUTIONS}/late.py; sleep 0.1; done)"
    left = attack(SOLVES + f'setsid bash -c "{late.replace(chr(34), "")}" >/dev/null 2>&1 & disown; true')
    assert sittings.judge(left).status == "completed" and "late.py" not in sittings.solutions(left)


@in_containers
def test_bombs_end_with_their_agent() -> None:
    """Memory, its log, then processes: no command gets an answer beside those, and the wall budget ends the job."""
    left = attack(
        SOLVES + "for n in 40 28; do python -c \"x = [bytearray(1 << $n) for _ in range(99)]\"; done; echo 1st",
        "yes > /proc/1/fd/1 & sleep 3; kill %1; printf '\\033]0;owned\\007\\n' > /proc/1/fd/1; echo 2nd",
        "bomb() { bomb | bomb & }; bomb; sleep 3", memory=1 << 30, wall_s=60.0,
    )  # fmt: skip
    found = sittings.judge(left)
    assert "MemoryError" in said(left) and "1st" in said(left) and "2nd" in said(left)
    assert found.klass == "agent" and NAME in sittings.solutions(left), (found, left.ending)


def test_a_basket_is_bounded_in_files_too() -> None:
    basket = Basket()
    for n in range(MOST_FILES + 50):
        basket.put(f"transcript/{n}", lambda most: b"")
    assert len(basket.files) == MOST_FILES and basket.cut == ["more files"]
    for name in ("a/../b", "a//b", "/a", "a\nb.py", "\udcff.py", ".a", "-a", "a" * 130, "a/" * 120, ""):
        assert not rules.storable(name), name
    assert rules.storable(f"work/solutions/{NAME}") and rules.storable("transcript/a-b/c_1.jsonl")


# -- what it reaches


@in_containers
def test_no_page_of_the_knowledge_base_is_in_an_agents_container() -> None:
    """Nor in a cache of compiled modules, another folder or another process."""
    pages = sorted((ROOT / "repro" / "knowledge").rglob("*.md"))
    line = max(pages[0].read_text().splitlines(), key=len)[:60]
    left = attack(
        f"grep -rlF --exclude='*.so*' -- {json.dumps(line)} /opt /usr/share /etc /var /tmp /job /srv /home 2>/dev/null "
        "| grep -v '^/job/\\(outputs\\|events\\)'; find / -xdev -name '*oracle*' -path '*artifacts*' 2>/dev/null; "
        "find /proc/[0-9]*/roo?/opt/repro/tests -type f 2>/dev/null | head -3; echo looked",
        "umount /opt/repro/artifacts; mount -o remount,rw /opt/repro/artifacts; "
        "unshare -Urm umount /opt/repro/artifacts; ls /opt/repro/artifacts /gateway; echo nothing",
    )
    text = said(left)
    assert pages and "looked" in text and "nothing" in text
    assert "/knowledge" not in text and ".py" not in text and "oracle" not in text, text
