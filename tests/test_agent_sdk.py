"""Our own agent's loop, against a server that answers as told: every way in which an answer can stop or fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
from agent_cell import Cell, call, message, text  # noqa: E402

from repro.agents import sdk_provider  # noqa: E402
from repro.agents.sdk_context import KEPT_RESULTS, Conversation  # noqa: E402

SOLUTION = "solutions/L1_36_RMSNorm.py"
CREATE = call("str_replace_based_edit_tool", command="create", path=SOLUTION, file_text="x = 1\n")
DONE = message(text("done"))


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    monkeypatch.setattr(sdk_provider, "FIRST_PAUSE_S", 0.01)
    made = Cell(tmp_path)
    yield made
    made.close()


def overloaded(status: int = 529, **headers: str) -> dict[str, Any]:
    return {"error": {"status": status, "type": "overloaded_error", "message": "busy", "headers": headers}}


def refused(status: int, kind: str, said: str) -> dict[str, Any]:
    return {"error": {"status": status, "type": kind, "message": said, "headers": {"x-should-retry": "false"}}}


def test_a_tool_is_run_for_real_and_its_result_goes_back(cell: Cell) -> None:
    cell.serve([message(CREATE), message(call("bash", 2, command="cat " + SOLUTION)), DONE])
    outcome = cell.run()
    assert outcome["status"] == "completed" and outcome["turns"] == 3, outcome
    assert outcome["tool_calls"] == {"str_replace_based_edit_tool": 1, "bash": 1}
    assert outcome["usage"] == {"input_tokens": 30, "output_tokens": 15}
    assert (cell.folder / "work" / SOLUTION).read_text() == "x = 1\n"
    last = cell.requests()[2]["messages"][-1]["content"]
    assert last[0]["tool_use_id"] == "toolu_2" and last[0]["content"][0]["text"] == "x = 1"


def test_an_end_without_a_solution_is_giving_up(cell: Cell) -> None:
    cell.serve([DONE])
    assert cell.run()["status"] == "gave_up"


def test_a_stop_sequence_ends_the_turn(cell: Cell) -> None:
    cell.serve([message(CREATE), message(text("x"), stop="stop_sequence")])
    assert cell.run()["status"] == "completed"


def test_a_cut_off_answer_is_continued_once_and_its_half_call_is_not_run(cell: Cell) -> None:
    half = call("bash", 1, command="touch ran") | {"partial": '{"command": "touch r'}
    cell.serve([message(half, stop="max_tokens"), message(CREATE | {"id": "toolu_2"}), DONE])
    assert cell.run()["status"] == "completed"
    assert not (cell.folder / "work" / "ran").exists()
    told = cell.requests()[1]["messages"][-1]["content"]
    assert told[0]["tool_use_id"] == "toolu_1" and told[0]["is_error"] and "cut off" in told[1]["text"]


def test_two_cut_off_answers_in_a_row_end_it(cell: Cell) -> None:
    cell.serve([message(text("long"), stop="max_tokens")])
    outcome = cell.run()
    assert outcome["status"] == "agent_error" and "max_tokens" in outcome["detail"] and outcome["turns"] == 2


@pytest.mark.parametrize("stop", ["pause_turn", "compaction"])
def test_a_pause_is_sent_back_as_it_is_and_goes_on(cell: Cell, stop: str) -> None:
    cell.serve([message(text("half"), stop=stop), message(CREATE), DONE])
    assert cell.run()["status"] == "completed"
    assert [m["role"] for m in cell.requests()[1]["messages"]] == ["user", "assistant"]


def test_a_refusal_is_an_outcome_of_its_own(cell: Cell) -> None:
    cell.serve([message(text("I cannot"), stop="refusal")])
    outcome = cell.run()
    assert (outcome["status"], outcome["detail"]) == ("refused", "I cannot")


def test_an_unknown_stop_reason_ends_it_with_its_name(cell: Cell) -> None:
    cell.serve([message(text("?"), stop="something_new")])
    outcome = cell.run()
    assert outcome["status"] == "agent_error" and "something_new" in outcome["detail"]


def test_a_full_context_loses_old_results_once_and_then_ends(cell: Cell) -> None:
    calls = [message(call("bash", n, command=f"seq {n} 2000")) for n in range(1, 8)]
    cell.serve([*calls, message(text("x"), stop="model_context_window_exceeded"), DONE])
    assert cell.run()["status"] == "gave_up"
    edits = cell.events("context_edit")
    assert len(edits) == 1 and edits[0]["results_dropped"] >= 1
    cell.close()
    cell.socket.parent.mkdir()
    cell.serve([message(text("x"), stop="model_context_window_exceeded")])
    assert cell.run()["status"] == "agent_error"


def test_thinking_goes_back_unchanged(cell: Cell) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
    cell.serve([message(thought, CREATE), DONE])
    assert cell.run()["status"] == "completed"
    assert cell.requests()[1]["messages"][1]["content"] == [thought, CREATE]


def test_marks_of_the_cache_are_at_most_four_and_move_along(cell: Cell) -> None:
    cell.serve([message(call("bash", n, command="true")) for n in range(1, 5)] + [DONE])
    cell.run()
    for body in cell.requests():
        users = [m for m in body["messages"] if m["role"] == "user"]
        marked = [m for m in users if any("cache_control" in block for block in m["content"])]
        assert marked == users[-2:] and "cache_control" in users[-1]["content"][-1]
        assert "cache_control" in body["system"][0] and str(body).count("'cache_control'") <= 4


def test_old_results_are_dropped_over_the_limit_and_pairs_stay_whole(cell: Cell) -> None:
    calls = [message(call("bash", n, command=f"seq {n} 2000"), input_tokens=100 * n) for n in range(1, 10)]
    cell.serve([*calls, DONE])
    cell.run(options={"context_tokens": 650})
    edits = cell.events("context_edit")
    assert edits and all(edit["results_dropped"] and edit["input_tokens"] > 650 for edit in edits)
    blocks = [block for m in cell.requests()[-1]["messages"] for block in m["content"]]
    used = [b["id"] for b in blocks if b["type"] == "tool_use"]
    results = [b for b in blocks if b["type"] == "tool_result"]
    assert used == [b["tool_use_id"] for b in results] and len(used) == 9
    dropped = ["removed to make room" in b["content"][0]["text"] for b in results]
    assert dropped[0] and not any(dropped[-KEPT_RESULTS:]) and dropped == sorted(dropped, reverse=True)


def test_a_conversation_without_old_results_has_nothing_to_drop() -> None:
    assert Conversation("x" * 10_000).drop_results(10_000, 10) is None


def test_a_request_that_is_too_long_is_shortened_and_sent_again(cell: Cell) -> None:
    long = refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    calls = [message(call("bash", n, command="seq 2000")) for n in range(1, 7)]
    cell.serve([message(CREATE), *calls, long, DONE])
    assert cell.run()["status"] == "completed"
    assert cell.events("context_edit")[0]["results_dropped"] >= 1


def test_an_overloaded_provider_is_asked_again_when_it_says(cell: Cell) -> None:
    cell.serve([overloaded(529), overloaded(429, **{"retry-after": "0.3"}), overloaded(500), message(CREATE), DONE])
    assert cell.run()["status"] == "completed"
    retries = [e for e in cell.events("request") if "error" in e]
    assert [e["error"][:3] for e in retries] == ["529", "429", "500"] and retries[1]["retry_in_s"] == 0.3


def test_a_provider_that_stays_overloaded_is_at_fault(cell: Cell) -> None:
    cell.serve([overloaded()])
    outcome = cell.run()
    assert outcome["status"] == "provider_error" and len(cell.requests()) == sdk_provider.ATTEMPTS


@pytest.mark.parametrize("step", [{"broken": 2}, {"broken": 2, "quietly": True}, {"said": "overloaded_error"}])
def test_a_stream_that_breaks_is_asked_for_again(cell: Cell, step: dict[str, Any]) -> None:
    cell.serve([step, message(CREATE), DONE])
    outcome = cell.run()
    assert outcome["status"] == "completed" and outcome["turns"] == 2, outcome
    assert len([e for e in cell.events("request") if "error" in e]) == 1


def test_a_spent_budget_ends_it_at_once_and_keeps_the_solution(cell: Cell) -> None:
    spent = refused(400, "invalid_request_error", "gateway: the turns of this run are used up: 1 of 1 [budget:turns]")
    cell.serve([message(CREATE), spent])
    outcome = cell.run()
    assert outcome["status"] == "budget" and "budget:turns" in outcome["detail"] and len(cell.requests()) == 2
    assert (cell.folder / "work" / SOLUTION).exists()


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (refused(403, "permission_error", "gateway: this run uses a, not b [model_denied]"), "infra_error"),
        (refused(401, "authentication_error", "invalid x-api-key"), "provider_error"),
        (refused(400, "invalid_request_error", "gateway: the time of this run is used up [budget:wall]"), "timeout"),
    ],
)
def test_errors_are_classified_by_their_cause(cell: Cell, step: dict[str, Any], status: str) -> None:
    cell.serve([step])
    assert cell.run()["status"] == status and len(cell.requests()) == 1


def test_a_gateway_that_is_gone_in_the_middle_is_infrastructure(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_provider, "ATTEMPTS", 2)
    cell.serve([message(call("bash", command=f"kill -9 $(cat {cell.pid_file})"))])
    assert cell.run()["status"] == "infra_error"


@pytest.mark.clock
def test_a_hanging_model_is_left_when_the_time_is_over(cell: Cell) -> None:
    cell.serve([{"hang_s": 60}])
    outcome = cell.run(budgets={"wall_s": 1})
    assert outcome["status"] == "timeout" and outcome["wall_s"] < 10


def test_knowledge_tools_are_shown_verbatim_run_and_logged(cell: Cell) -> None:
    asked = call("mcp__knowledge__echo", text="ab", times=2)
    wrong = call("mcp__knowledge__echo", 2, text="raise")
    cell.serve([message(asked, wrong), message(CREATE | {"id": "toolu_3"}), DONE], mcp=True)
    outcome = cell.run(arm="with_kb", knowledge="local", expect_tools=["echo", "slow"])
    assert outcome["status"] == "completed" and outcome["preflight"]["tools"] == ["echo", "slow"], outcome
    tools = {tool["name"]: tool for tool in cell.requests()[0]["tools"]}
    assert tools["mcp__knowledge__echo"]["input_schema"]["required"] == ["text"]
    first, second = cell.requests()[1]["messages"][-1]["content"]
    assert first["content"][0]["text"] == "abab" and not first["is_error"]
    assert second["is_error"] and "echo" in second["content"][0]["text"]
    assert [(e["name"], e["is_error"]) for e in cell.events("kb")] == [("mcp__knowledge__echo", False),
                                                                     ("mcp__knowledge__echo", True)]  # fmt: skip


@pytest.mark.clock
def test_a_slow_knowledge_tool_costs_one_call_its_bound(cell: Cell) -> None:
    cell.serve([message(call("mcp__knowledge__slow", text="x")), message(CREATE | {"id": "toolu_2"}), DONE], mcp=True)
    outcome = cell.run(arm="with_kb", knowledge="local", expect_tools=["echo", "slow"], options={"tool_s": 1.0})
    assert outcome["status"] == "completed" and outcome["wall_s"] < 20
    answer = cell.requests()[1]["messages"][-1]["content"][0]
    assert answer["is_error"] and "within 1 s" in answer["content"][0]["text"]


def test_an_unknown_tool_is_an_error_for_the_model(cell: Cell) -> None:
    cell.serve([message(call("web_search", query="x")), message(CREATE | {"id": "toolu_2"}), DONE])
    assert cell.run()["status"] == "completed"
    assert cell.events("tool_result")[0]["text"] == "there is no tool 'web_search'"
