"""The bridge to the knowledge base, against a real MCP server process that dies, hangs and comes back."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="requirements/agents.txt is not installed")
from agent_job import Job  # noqa: E402

from repro.agents.relay import Relay  # noqa: E402
from repro.agents.tools_knowledge import SOFT_ERROR, Knowledge, KnowledgeError  # noqa: E402

ECHO = "mcp__knowledge__echo"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()


@pytest.fixture
def knowledge(job: Job) -> Iterator[Knowledge]:
    job.serve([], mcp=True)
    relay = Relay(0, str(job.socket))
    relay.start()
    yield Knowledge(f"{relay.url}/mcp", 5.0)
    relay.close()


def test_tools_come_with_their_schemas_as_the_server_gives_them(knowledge: Knowledge) -> None:
    assert knowledge.names() == set() and sorted(knowledge.discover(10)) == ["echo", "slow"]
    echo = next(schema for schema in knowledge.schemas() if schema["name"] == ECHO)
    assert echo["description"] == "Says it again." and set(echo) == {"name", "description", "input_schema"}
    properties = echo["input_schema"]["properties"]
    assert properties["text"]["type"] == "string" and properties["times"]["default"] == 1


def test_a_call_is_answered_and_a_wrong_one_is_an_error(knowledge: Knowledge) -> None:
    assert knowledge.call(ECHO, {"text": "ab", "times": 3}, 10).text == "ababab"
    wrong = knowledge.call(ECHO, {"times": "many"}, 10)
    assert wrong.is_error and wrong.text
    assert knowledge.call("mcp__knowledge__none", {}, 10).is_error


def test_a_long_answer_is_shortened(knowledge: Knowledge) -> None:
    answer = knowledge.call(ECHO, {"text": "x", "times": 100_000}, 10)
    assert not answer.is_error and len(answer.text) < 31_000


def test_a_failure_that_calls_itself_an_answer_is_noticed(knowledge: Knowledge) -> None:
    answer = knowledge.call(ECHO, {"text": "API error: Connection error"}, 10)
    assert answer.soft_error and not answer.is_error
    assert not SOFT_ERROR.search("A kernel is limited by its rate of loads; limit the time of a tile.")


@pytest.mark.clock
def test_a_dead_server_is_reported_at_once_and_reached_after_it_returns(job: Job, knowledge: Knowledge) -> None:
    assert job.server is not None
    job.server.kill()
    job.server.wait()
    begin = time.monotonic()
    assert knowledge.call(ECHO, {"text": "x"}, 10).is_error and time.monotonic() - begin < 5
    with pytest.raises(KnowledgeError):
        knowledge.discover(10)
    job.socket.unlink()
    job.serve([], mcp=True)
    assert knowledge.call(ECHO, {"text": "x"}, 10).text == "x"


@pytest.mark.clock
def test_a_server_that_hangs_costs_a_call_its_bound(job: Job, knowledge: Knowledge) -> None:
    assert job.server is not None
    job.server.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    answer = knowledge.call(ECHO, {"text": "x"}, 1.0)
    assert answer.is_error and "within 1 s" in answer.text and time.monotonic() - begin < 4
    with pytest.raises(KnowledgeError):
        knowledge.discover(1.0)
    job.server.send_signal(signal.SIGCONT)
    assert knowledge.call(ECHO, {"text": "x"}, 10).text == "x"
