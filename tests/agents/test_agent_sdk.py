"""Our own agent's loop, against a server that answers as told: every way in which an answer can stop or fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
from agent_job import Job, call, message, text  # noqa: E402

from repro.agents import sdk_provider  # noqa: E402
from repro.agents.sdk_context import KEPT_RESULTS, Conversation  # noqa: E402

SOLUTION = "solutions/L1_36_RMSNorm.py"
CREATE = call("str_replace_based_edit_tool", command="create", path=SOLUTION, file_text="x = 1\n")
DONE = message(text("done"))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(sdk_provider, "FIRST_PAUSE_S", 0.01)
    made = Job(tmp_path)
    yield made
    made.close()


def overloaded(status: int = 529, **headers: str) -> dict[str, Any]:
    return {"error": {"status": status, "type": "overloaded_error", "message": "busy", "headers": headers}}


def refused(status: int, kind: str, said: str) -> dict[str, Any]:
    return {"error": {"status": status, "type": kind, "message": said, "headers": {"x-should-retry": "false"}}}


def test_a_tool_is_run_for_real_and_its_result_goes_back(job: Job) -> None:
    job.serve([message(CREATE), message(call("bash", 2, command="cat " + SOLUTION)), DONE])
    outcome = job.run()
    assert outcome["status"] == "completed" and outcome["turns"] == 3, outcome
    assert outcome["tool_calls"] == {"str_replace_based_edit_tool": 1, "bash": 1}
    assert outcome["usage"] == {"input_tokens": 30, "output_tokens": 15}
    assert (job.folder / "work" / SOLUTION).read_text() == "x = 1\n"
    last = job.requests()[2]["messages"][-1]["content"]
    assert last[0]["tool_use_id"] == "toolu_2" and last[0]["content"][0]["text"] == "x = 1"


def test_an_end_without_a_solution_is_giving_up(job: Job) -> None:
    job.serve([DONE])
    assert job.run()["status"] == "gave_up"


def test_a_stop_sequence_ends_the_turn(job: Job) -> None:
    job.serve([message(CREATE), message(text("x"), stop="stop_sequence")])
    assert job.run()["status"] == "completed"


def test_a_cut_off_answer_is_continued_once_and_its_half_call_is_not_run(job: Job) -> None:
    half = call("bash", 1, command="touch ran") | {"partial": '{"command": "touch r'}
    job.serve([message(half, stop="max_tokens"), message(CREATE | {"id": "toolu_2"}), DONE])
    assert job.run()["status"] == "completed"
    assert not (job.folder / "work" / "ran").exists()
    told = job.requests()[1]["messages"][-1]["content"]
    assert told[0]["tool_use_id"] == "toolu_1" and told[0]["is_error"] and "cut off" in told[1]["text"]


def test_two_cut_off_answers_in_a_row_end_it(job: Job) -> None:
    job.serve([message(text("long"), stop="max_tokens")])
    outcome = job.run()
    assert outcome["status"] == "agent_error" and "max_tokens" in outcome["detail"] and outcome["turns"] == 2


@pytest.mark.parametrize("stop", ["pause_turn", "compaction"])
def test_a_pause_is_sent_back_as_it_is_and_goes_on(job: Job, stop: str) -> None:
    job.serve([message(text("half"), stop=stop), message(CREATE), DONE])
    assert job.run()["status"] == "completed"
    assert [m["role"] for m in job.requests()[1]["messages"]] == ["user", "assistant"]


def test_a_refusal_is_an_outcome_of_its_own(job: Job) -> None:
    job.serve([message(text("I cannot"), stop="refusal")])
    outcome = job.run()
    assert (outcome["status"], outcome["detail"]) == ("refused", "I cannot")


def test_an_unknown_stop_reason_ends_it_with_its_name(job: Job) -> None:
    job.serve([message(text("?"), stop="something_new")])
    outcome = job.run()
    assert outcome["status"] == "agent_error" and "something_new" in outcome["detail"]


def test_a_full_context_loses_old_results_once_and_then_ends(job: Job) -> None:
    calls = [message(call("bash", n, command=f"seq {n} 2000")) for n in range(1, 8)]
    job.serve([*calls, message(text("x"), stop="model_context_window_exceeded"), DONE])
    assert job.run()["status"] == "gave_up"
    edits = job.events("context_edit")
    assert len(edits) == 1 and edits[0]["results_dropped"] >= 1
    job.close()
    job.socket.parent.mkdir()
    job.serve([message(text("x"), stop="model_context_window_exceeded")])
    assert job.run()["status"] == "agent_error"


def test_thinking_goes_back_unchanged(job: Job) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
    job.serve([message(thought, CREATE), DONE])
    assert job.run()["status"] == "completed"
    assert job.requests()[1]["messages"][1]["content"] == [thought, CREATE]


def test_marks_of_the_cache_are_at_most_four_and_move_along(job: Job) -> None:
    job.serve([message(call("bash", n, command="true")) for n in range(1, 5)] + [DONE])
    job.run()
    for body in job.requests():
        users = [m for m in body["messages"] if m["role"] == "user"]
        marked = [m for m in users if any("cache_control" in block for block in m["content"])]
        assert marked == users[-2:] and "cache_control" in users[-1]["content"][-1]
        assert "cache_control" in body["system"][0] and str(body).count("'cache_control'") <= 4


def test_old_results_are_dropped_over_the_limit_and_pairs_stay_whole(job: Job) -> None:
    calls = [message(call("bash", n, command=f"seq {n} 2000"), input_tokens=100 * n) for n in range(1, 10)]
    job.serve([*calls, DONE])
    job.run(options={"context_tokens": 650})
    edits = job.events("context_edit")
    assert edits and all(edit["results_dropped"] and edit["input_tokens"] > 650 for edit in edits)
    blocks = [block for m in job.requests()[-1]["messages"] for block in m["content"]]
    used = [b["id"] for b in blocks if b["type"] == "tool_use"]
    results = [b for b in blocks if b["type"] == "tool_result"]
    assert used == [b["tool_use_id"] for b in results] and len(used) == 9
    dropped = ["removed to make room" in b["content"][0]["text"] for b in results]
    assert dropped[0] and not any(dropped[-KEPT_RESULTS:]) and dropped == sorted(dropped, reverse=True)


def test_a_conversation_without_old_results_has_nothing_to_drop() -> None:
    assert Conversation("x" * 10_000).drop_results(10_000, 10) is None


def test_a_request_that_is_too_long_is_shortened_and_sent_again(job: Job) -> None:
    long = refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    calls = [message(call("bash", n, command="seq 2000")) for n in range(1, 7)]
    job.serve([message(CREATE), *calls, long, DONE])
    assert job.run()["status"] == "completed"
    assert job.events("context_edit")[0]["results_dropped"] >= 1


def test_an_overloaded_provider_is_asked_again_when_it_says(job: Job) -> None:
    job.serve([overloaded(529), overloaded(429, **{"retry-after": "0.3"}), overloaded(500), message(CREATE), DONE])
    assert job.run()["status"] == "completed"
    retries = [e for e in job.events("request") if "error" in e]
    assert [e["error"][:3] for e in retries] == ["529", "429", "500"] and retries[1]["retry_in_s"] == 0.3


def test_a_provider_that_stays_overloaded_is_at_fault(job: Job) -> None:
    job.serve([overloaded()])
    outcome = job.run()
    assert outcome["status"] == "provider_error" and len(job.requests()) == sdk_provider.ATTEMPTS


@pytest.mark.parametrize("step", [{"broken": 2}, {"broken": 2, "quietly": True}, {"said": "overloaded_error"}])
def test_a_stream_that_breaks_is_asked_for_again(job: Job, step: dict[str, Any]) -> None:
    job.serve([step, message(CREATE), DONE])
    outcome = job.run()
    assert outcome["status"] == "completed" and outcome["turns"] == 2, outcome
    assert len([e for e in job.events("request") if "error" in e]) == 1


def test_a_spent_budget_ends_it_at_once_and_keeps_the_solution(job: Job) -> None:
    spent = refused(400, "invalid_request_error", "gateway: the turns of this run are used up: 1 of 1 [budget:turns]")
    job.serve([message(CREATE), spent])
    outcome = job.run()
    assert outcome["status"] == "budget" and "budget:turns" in outcome["detail"] and len(job.requests()) == 2
    assert (job.folder / "work" / SOLUTION).exists()


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (refused(403, "permission_error", "gateway: this run uses a, not b [model_denied]"), "infra_error"),
        (refused(401, "authentication_error", "invalid x-api-key"), "provider_error"),
        (refused(400, "invalid_request_error", "gateway: the time of this run is used up [budget:wall]"), "timeout"),
    ],
)
def test_errors_are_classified_by_their_cause(job: Job, step: dict[str, Any], status: str) -> None:
    job.serve([step])
    assert job.run()["status"] == status and len(job.requests()) == 1


def test_a_gateway_that_is_gone_in_the_middle_is_infrastructure(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_provider, "ATTEMPTS", 2)
    job.serve([message(call("bash", command=f"kill -9 $(cat {job.pid_file})"))])
    assert job.run()["status"] == "infra_error"


@pytest.mark.clock
def test_a_hanging_model_is_left_when_the_time_is_over(job: Job) -> None:
    job.serve([{"hang_s": 60}])
    outcome = job.run(budgets={"wall_s": 1})
    assert outcome["status"] == "timeout" and outcome["wall_s"] < 10


@pytest.mark.slow
def test_knowledge_tools_are_shown_verbatim_run_and_logged(job: Job) -> None:
    asked = call("mcp__knowledge__echo", text="ab", times=2)
    wrong = call("mcp__knowledge__echo", 2, text="raise")
    job.serve([message(asked, wrong), message(CREATE | {"id": "toolu_3"}), DONE], mcp=True)
    outcome = job.run(arm="with_kb", knowledge="local", expect_tools=["echo", "slow"])
    assert outcome["status"] == "completed" and outcome["preflight"]["tools"] == ["echo", "slow"], outcome
    tools = {tool["name"]: tool for tool in job.requests()[0]["tools"]}
    assert tools["mcp__knowledge__echo"]["input_schema"]["required"] == ["text"]
    first, second = job.requests()[1]["messages"][-1]["content"]
    assert first["content"][0]["text"] == "abab" and not first["is_error"]
    assert second["is_error"] and "echo" in second["content"][0]["text"]
    assert [(e["name"], e["is_error"]) for e in job.events("kb")] == [("mcp__knowledge__echo", False),
                                                                     ("mcp__knowledge__echo", True)]  # fmt: skip


@pytest.mark.clock
def test_a_slow_knowledge_tool_costs_one_call_its_bound(job: Job) -> None:
    job.serve([message(call("mcp__knowledge__slow", text="x")), message(CREATE | {"id": "toolu_2"}), DONE], mcp=True)
    outcome = job.run(arm="with_kb", knowledge="local", expect_tools=["echo", "slow"], options={"tool_s": 1.0})
    assert outcome["status"] == "completed" and outcome["wall_s"] < 20
    answer = job.requests()[1]["messages"][-1]["content"][0]
    assert answer["is_error"] and "within 1 s" in answer["content"][0]["text"]


def test_an_unknown_tool_is_an_error_for_the_model(job: Job) -> None:
    job.serve([message(call("web_search", query="x")), message(CREATE | {"id": "toolu_2"}), DONE])
    assert job.run()["status"] == "completed"
    assert job.events("tool_result")[0]["text"] == "there is no tool 'web_search'"
