"""Studies in real containers of images with a layer more: the Claude Code CLI, and a knowledge server of another's that
is refused, slow, limited or dead. Replies come from scripts; no key, no network."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, Tool, ask_docker, fresh, rows, strict_json
from test_agent_containers import (
    DRIVER,
    END,
    KEY,
    SCRIPTS,
    STUDY,
    events,
    left_over,
    record,
    solves,
    write,
)
from test_agent_containers import settings_python as python
from test_gateway_knowledge import KB_TOOLS, SERVER

from repro import config

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("image"), pytest.mark.timeout(600)]
CLAUDE_STUDY = ("run", "--agent", "claude-code", *STUDY[3:])
PIN = strict_json((ROOT / "requirements" / "claude-code.json").read_text())["version"]


# -- the CLI


@functools.cache
def has_cli() -> bool:
    """Whether the image has the CLI."""
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "claude", config.image(), "--version"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def both_arms(image: None, tmp_path_factory: pytest.TempPathFactory, smoke_results: Path) -> SimpleNamespace:
    """The real CLI through the scripted task, both arms at once."""
    if not has_cli():
        pytest.skip(f"the image {config.image()!r} has no Claude Code: build it with CLAUDE_CODE=ADDRESS")
    tool = fresh(tmp_path_factory.mktemp("claude"), smoke_results)
    process = tool.start(*CLAUDE_STUDY, "--upstream", f"replay:{SCRIPTS / 'claude_code'}", "--jobs", 2)
    done = tool.finish(process, 400)
    assert done.code == 0, done.err
    return SimpleNamespace(tool=tool, done=done, pid=process.pid, bundle=tool.bundles()[-1])


@pytest.mark.parametrize("arm", ["baseline", "with_kb"])
def test_the_real_cli_writes_a_kernel_reads_its_error_and_fixes_it(arm: str, both_arms: Any) -> None:
    job = f"L1_36/{arm}/0"
    told = record(both_arms.bundle, job)
    outcome, meter = told["outcome"], told["meter"]
    assert told["status"] == "completed" and outcome["agent_version"] == f"claude-code {PIN}", told
    said = " ".join(event["text"] for event in events(both_arms.bundle, job, "tool_result"))
    assert said.index("L1_36_RMSNorm: wrong: ") < said.index("L1_36_RMSNorm: correct ("), (
        "its tools ran and the judge judged"
    )
    knows = arm == "with_kb"
    asked = {"mcp__knowledge__search_knowledge": 1} if knows else {}
    assert outcome["tool_calls"] == {"Bash": 3, "Edit": 2} | asked
    assert meter["kb"]["calls"] == knows == len(events(both_arms.bundle, job, "kb"))
    lines = len((SCRIPTS / "claude_code" / f"L1_36.{arm}.jsonl").read_text().splitlines())
    assert outcome["turns"] == meter["turns"] == lines, "each reply was asked for once, and none beside them"
    (row,) = rows(both_arms.bundle)[job]["result"]["results"]
    assert (row["verdict"], row["trust"]) == ("correct", "audited")
    assert told["isolation"]["agent"]["network"] == "none"


def test_a_study_of_the_real_cli_verifies_is_reported_and_leaves_nothing(both_arms: Any) -> None:
    done = both_arms.tool("verify", both_arms.bundle)
    assert done.code == 0 and "1 bundle: 1 ok" in done.out, done.out
    text = (both_arms.bundle / "report.md").read_text()
    assert "Agent claude-code" in text and "**Warning.** Scripted" in text and "search_knowledge 1" in text
    kept = {path.name for path in (both_arms.bundle / "agents/L1_36/with_kb/0/attempt-1/transcript").iterdir()}
    assert {"claude.jsonl", "claude.stderr", "mcp.json"} <= kept
    assert not left_over(both_arms.pid) and not both_arms.tool.processes()


def test_an_image_without_the_cli_is_reported_before_anything_starts(judge_tool: Tool) -> None:
    if has_cli():
        pytest.skip(f"the image {config.image()!r} has Claude Code")
    done = judge_tool(*CLAUDE_STUDY, "--upstream", f"replay:{SCRIPTS / 'claude_code'}")
    assert done.code == 1 and "Claude Code is not installed" in done.complaint and "CLAUDE_CODE=" in done.complaint
    assert not judge_tool.bundles()


# -- a knowledge server that fails


@pytest.fixture(scope="module")
def knowing(image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image with a package of the published server's name and version, which behaves as its queries say."""
    folder, tag = tmp_path_factory.mktemp("layer"), f"repro-test-{uuid.uuid4().hex[:12]}"
    (folder / "server.py").write_text(SERVER.format(names=list(KB_TOOLS)))
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: leeroopedia-mcp\nVersion: 0.1.9\n")
    site = ask_docker("run", "--rm", "--network", "none", "--entrypoint", "python", config.image(), "-c",
               "import mcp, pathlib; print(pathlib.Path(mcp.__file__).parents[1])").strip()  # fmt: skip
    (folder / "Dockerfile").write_text(
        f"FROM {config.image()}\nCOPY server.py {site}/leeroopedia_mcp/server.py\n"
        f"COPY METADATA {site}/leeroopedia_mcp-0.1.9.dist-info/METADATA\n"
    )
    ask_docker("build", "-q", "--tag", tag, str(folder))
    yield tag
    ask_docker("image", "rm", "--force", tag)


def consults(query: str) -> dict[str, Any]:
    """A reply that asks the knowledge base."""
    call = {"type": "tool_use", "name": "mcp__knowledge__search_knowledge", "input": {"query": query}}
    return {"content": [call], "stop_reason": "tool_use", "usage": {"input_tokens": 100, "output_tokens": 10}}


PATCH = """
from repro.studies.agent import sittings as changed
build = changed.build
def patched(*args, **kwargs):
    job = build(*args, **kwargs)
    job.gateway["knowledge"] |= {fields}
    return job
changed.build = patched
"""


def study(tool: Tool, image: str, script: list[dict[str, Any]], *more: str, fields: str = "") -> tuple[str, Path]:
    """The arm with knowledge of another's; fields: what changes in its part of gateway.json. Its stderr, its bundle."""
    folder = write(tool.folder / "scripts", with_kb=script)
    patch = PATCH.format(fields=fields) if fields else ""
    command = ["env", f"PYTHONPATH={ROOT}", python(), "-c", patch + DRIVER, "kb_url=http://127.0.0.1:9", *STUDY,
               "--arms", "with_kb", "--kb", "leeroopedia", "--upstream", f"replay:{folder}", "--results",
               str(tool.results), *more]  # fmt: skip
    environment = os.environ | {
        "LEEROOPEDIA_API_KEY": KEY, "REPRO_STATE": str(tool.folder / "state"), "REPRO_IMAGE": image
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stderr, tool.bundles()[-1]


def test_a_knowledge_server_slow_limited_and_dead_costs_calls_and_not_the_job(judge_tool: Tool, knowing: str) -> None:
    """Each failure is an answer that says so; gateway, agent, journal and report count the same calls."""
    queries = ["tiles", "limit", "sleep", "die", "again", "more", "evenmore"]
    script = [*map(consults, queries), solves(), END]
    _, bundle = study(judge_tool, knowing, script, "--budget-kb-calls", "5", fields="{'timeout_s': 2}")
    job = "L1_36/with_kb/0"
    told = record(bundle, job)
    assert told["status"] == "completed" and len(told["attempts"]) == 1, told
    assert rows(bundle)[job]["status"] == "done" and rows(bundle)[job]["agent"]["solution"]
    answers = events(bundle, job, "tool_result")[: len(queries)]
    assert [bool(each["is_error"]) for each in answers] == [False, False, True, True, True, True, True]
    words = ["Tiling", "Rate limit", "timed out", "failed", "failed", "used up", "used up"]
    for answer, word in zip(answers, words, strict=True):
        assert word in answer["text"], answer
    meter, consulted = told["meter"], told["consulted"]["search_knowledge"]
    assert (meter["kb"]["calls"], meter["kb"]["errors"]) == (5, 4) and meter["denied"]["budget:kb_calls"] == 2
    assert (consulted["calls"], consulted["errors"], consulted["denied"]) == (5, 4, 2)
    journal = [json.loads(line) for line in (bundle / told["folder"] / "journal.jsonl").read_text().splitlines()]
    decisions = [line["decision"] for line in journal if line["kind"] == "kb"]
    assert (decisions.count("allowed"), decisions.count("denied")) == (5, 2)
    text = drawn(judge_tool, bundle)
    assert "search_knowledge 5" in text and "budget:kb_calls 2" in text
    assert not leaks(bundle)


def drawn(tool: Tool, bundle: Path) -> str:
    """The report of a bundle."""
    done = tool("report", bundle, "-o", tool.folder / "drawn", "--format", "md")
    assert done.code == 0, done.err
    return (tool.folder / "drawn" / "report.md").read_text()


def leaks(bundle: Path) -> list[Path]:
    """Files of a bundle that hold the planted key."""
    return [path for path in bundle.rglob("*") if path.is_file() and KEY in path.read_text(errors="replace")]


def test_an_arm_whose_knowledge_base_does_not_start_spends_nothing_and_is_tried_again(
    judge_tool: Tool, knowing: str
) -> None:
    """Published, such an arm ran without one and said `MCP: YES`."""
    script = [consults("softmax"), solves(), END]
    err, bundle = study(judge_tool, knowing, script, "--retries", "1", fields="{'url': 'refuse'}")
    told = record(bundle, "L1_36/with_kb/0")
    assert [a["class"] for a in told["attempts"]] == ["infrastructure"] * 2 and "did not start" in told["detail"], told
    assert told["meter"].get("turns", 0) == 0 and not told["solutions"]
    assert rows(bundle)["L1_36/with_kb/0"]["status"] == "failed", "unfinished, and named: no row without knowledge"
    assert "infrastructure failure, again in" in err and not leaks(bundle) and KEY not in err


def test_a_knowledge_base_that_is_not_installed_is_said_before_anything_starts(judge_tool: Tool) -> None:
    folder = write(judge_tool.folder / "scripts", baseline=[END], with_kb=[END])
    done = judge_tool(*STUDY, "--upstream", f"replay:{folder}", "--kb", "leeroopedia", LEEROOPEDIA_API_KEY=KEY)
    assert done.code == 1 and "leeroopedia needs leeroopedia-mcp==0.1.9: found none" in done.complaint, done.err
    assert "--kb local" in done.complaint and not judge_tool.bundles() and KEY not in done.err
