"""The scripted demonstration, whole: a real gateway that replays, real tools, real judging, in both arms."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
import gateway_job  # noqa: E402
from agent_job import Job  # noqa: E402
from conftest import ROOT  # noqa: E402

from repro.knowledge import tools  # noqa: E402
from repro.system import jsonio  # noqa: E402

SCRIPTS = ROOT / "tests" / "agent_scripts"
TOOLS = [tool.name for tool in tools.TOOLS]
ARMS = {"baseline": ("none", []), "with_kb": ("local", TOOLS)}


@pytest.fixture
def job(tmp_path: Path, smoke_results: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    shutil.copytree(smoke_results / "fixtures", made.folder / "fixtures")
    (made.folder / "problems").mkdir()
    shutil.copy(ROOT / "problems" / "L1_36_RMSNorm.py", made.folder / "problems")
    yield made
    made.close()


def told(arm: str) -> dict[str, Any]:
    knowledge, names = ARMS[arm]
    return {"arm": arm, "knowledge": knowledge, "expect_tools": names, "model": gateway_job.MODEL,
            "budgets": {"wall_s": 200}}  # fmt: skip


def check(job: Job, outcome: dict[str, Any], arm: str) -> None:
    """The first version was found wrong, the second correct."""
    assert outcome["status"] == "completed", outcome
    judged = [e["text"] for e in job.events("tool_result") if "[1/1] L1_36/L1_36_RMSNorm: " in e["text"]]
    assert len(judged) == 2 and "RMSNorm: wrong: " in judged[0] and "RMSNorm: correct (" in judged[1], judged
    assert "/ channels" in (job.folder / "work" / "solutions" / "L1_36_RMSNorm.py").read_text()
    assert [e["is_error"] for e in job.events("kb")] == ([False] if arm == "with_kb" else [])


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_the_scripted_agent_reads_its_error_fixes_it_and_ends(job: Job, arm: str) -> None:
    lines = jsonio.lines(SCRIPTS / f"L1_36.{arm}.jsonl")
    knowledge = {"kind": ARMS[arm][0]}
    with gateway_job.Job(lines, arm=arm, knowledge=knowledge) as gateway:
        outcome = job.run(**told(arm), socket=str(gateway.socket))
    check(job, outcome, arm)
    assert outcome["turns"] == len(lines)


@pytest.mark.slow
def test_the_script_of_a_demonstration_can_be_carried_out_without_a_gateway(job: Job) -> None:
    shutil.copy(SCRIPTS / "L1_36.baseline.jsonl", job.folder / "replay.jsonl")
    check(job, job.run(agent="replay", **told("baseline")), "baseline")


def test_the_scripts_differ_in_what_the_knowledge_base_adds_alone() -> None:
    """And every reply says that it is scripted, the kernel that it is hand-written."""
    base, kb = (jsonio.lines(SCRIPTS / f"L1_36.{arm}.jsonl") for arm in ("baseline", "with_kb"))
    names = [[b["name"] for line in lines for b in line["content"] if b["type"] == "tool_use"] for lines in (base, kb)]
    added = [name for name in names[1] if name.startswith("mcp__")]
    assert [name for name in names[1] if name not in added] == names[0] and added == [
        "mcp__knowledge__search_knowledge"
    ]
    for lines in (base, kb):
        assert "Hand-written for the scripted demonstration" in str(lines)
        assert all("Scripted reply" in b["text"] for line in lines for b in line["content"] if b["type"] == "text")
