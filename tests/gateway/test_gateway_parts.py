"""The gateway's parts by themselves: prices, meter, redaction, events, scripts, room."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from repro.errors import PrerequisiteError, UsageError
from repro.gateway import config, prices, sse
from repro.gateway.admission import Full, Room
from repro.gateway.budgets import Budgets
from repro.gateway.journal import Journal, bodies
from repro.gateway.meter import Meter, tokens
from repro.gateway.redact import MARK, Redactor
from repro.gateway.upstreams import script
from repro.records.agent import MeterRecord

KEY = "sk-ant-planted/key+0123456789=="


def meter(tmp_path: Path, model: str = "claude-opus-5") -> Meter:
    return Meter(tmp_path / "meter.json", prices.rates(prices.load(), model), "2026-01-01", {})


def test_the_money_of_five_classes_is_what_a_hand_computes(tmp_path: Path) -> None:
    counted = meter(tmp_path)
    counted.add(
        {
            "input_tokens": 1000,
            "output_tokens": 2000,
            "cache_read_input_tokens": 30000,
            "cache_creation_input_tokens": 7000,
            "cache_creation": {"ephemeral_5m_input_tokens": 4000, "ephemeral_1h_input_tokens": 3000},
        },
        "claude-opus-5",
    )
    # 1000*5 + 2000*25 + 30000*0.50 + 4000*6.25 + 3000*10 = 5000 + 50000 + 15000 + 25000 + 30000 = 125000 per million
    assert counted.usd == pytest.approx(0.125)
    assert counted.fresh_tokens == 10000


def test_a_cheap_read_from_the_cache_is_not_a_tenth_of_the_input_price(tmp_path: Path) -> None:
    counted = meter(tmp_path, "claude-opus-5-5")
    counted.add({"input_tokens": 0, "cache_read_input_tokens": 1_000_000, "output_tokens": 0}, "")
    assert counted.usd == pytest.approx(0.20)


def test_cache_writes_without_a_lifetime_count_as_five_minutes() -> None:
    assert tokens({"cache_creation_input_tokens": 70})["cache_write_5m"] == 70
    split = tokens({"cache_creation_input_tokens": 70, "cache_creation": {"ephemeral_1h_input_tokens": 50}})
    assert (split["cache_write_5m"], split["cache_write_1h"]) == (20, 50)


def test_compaction_tokens_are_added_and_messages_counted_once() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "iterations": [
            {"type": "compaction", "input_tokens": 5000, "output_tokens": 300},
            {"type": "message", "input_tokens": 100, "output_tokens": 10},
        ],
    }
    assert tokens(usage) == {"input": 5100, "output": 310, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0}


def test_an_unknown_model_costs_null_and_never_nothing(tmp_path: Path) -> None:
    counted = meter(tmp_path, "claude-unheard-of")
    counted.add({"input_tokens": 10, "output_tokens": 10}, "claude-unheard-of")
    assert counted.record()["usd"] is None


@pytest.mark.parametrize(
    "name", ["us.anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-4-6", "global.anthropic.claude-opus-4-6-v1:0"]
)
def test_bedrock_names_find_the_price_of_their_model(name: str) -> None:
    assert prices.rates(prices.load(), name) == prices.load()["models"]["claude-opus-4-6"]


def test_every_shipped_price_is_dated_and_writes_cost_more_than_input() -> None:
    table = prices.load()
    assert table["as_of"] and len(table["models"]) > 8
    for name, rate in table["models"].items():
        assert rate["cache_read"] < rate["input"] < rate["cache_write_5m"] < rate["cache_write_1h"], name


def test_a_price_table_that_lacks_a_class_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "mine.toml"
    wrong.write_text('as_of = "2026-01-01"\n[models]\nx = { input = 1.0 }\n')
    with pytest.raises(UsageError, match="incomplete"):
        prices.load(wrong)


def test_a_meter_that_is_opened_again_goes_on_counting(tmp_path: Path) -> None:
    first = meter(tmp_path)
    first.add({"input_tokens": 5, "output_tokens": 1}, "m")
    first.turns = 3
    first.consult(hits=2, latency_s=0.5, failed=True)
    first.save()
    again = meter(tmp_path)
    again.add({"input_tokens": 5, "output_tokens": 1}, "m")
    assert (again.turns, again.tokens["input"], again.kb["errors"], again.models["m"]) == (3, 10, 1, 2)


def test_a_meter_fits_its_record(tmp_path: Path) -> None:
    counted = meter(tmp_path)
    counted.add({"input_tokens": 5, "output_tokens": 1}, "m")
    counted.consult(hits=2, latency_s=0.5, failed=True)
    assert MeterRecord.written(counted.record()).to_json() == counted.record()


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [
        ({"turns": 3}, "budget:turns"),
        ({"tokens": 100}, "budget:tokens"),
        ({"usd": 0.001}, "budget:usd"),
        ({"wall_s": 5.0}, "budget:wall"),
        ({"turns": 4, "tokens": 1000, "usd": 1.0, "wall_s": 60.0}, ""),
        ({}, ""),
    ],
)
def test_each_budget_ends_on_its_limit(tmp_path: Path, limits: dict[str, float | None], stopped: str) -> None:
    now = [0.0]
    counted = meter(tmp_path)
    budgets = Budgets(limits, counted, clock=lambda: now[0])
    budgets.begin()
    assert budgets.refusal() is None
    now[0], counted.turns = 6.0, 3
    counted.add({"input_tokens": 80, "output_tokens": 40}, "m")  # 80*5 + 40*25 = 1400 per million: 0.0014 USD
    refusal = budgets.refusal()
    assert (refusal.code if refusal else "") == stopped == counted.stopped


def test_turns_under_way_count_so_that_requests_sent_together_cannot_pass_the_limit(tmp_path: Path) -> None:
    budgets = Budgets({"turns": 2}, meter(tmp_path))
    for name in ("a", "b"):
        budgets.reserve(name, 10, 10)
    assert budgets.refusal() is not None


def everywhere(key: str) -> dict[str, str]:
    """A key in the forms that it could travel in."""
    raw = key.encode()
    return {
        "plain": f"x {key} y",
        "json": json.dumps({"key": key}),
        "json in json": json.dumps(json.dumps({"key": key})),
        "base64": base64.b64encode(raw).decode(),
        "base64 behind one byte": base64.b64encode(b"u" + raw + b" and more").decode(),
        "base64 of basic auth": base64.b64encode(b"me:" + raw).decode(),
        "base64 of two bytes more": base64.b64encode(b"ab" + raw).decode(),
        "urlsafe base64": base64.urlsafe_b64encode(b"user:" + raw).decode(),
        "hex": raw.hex(),
        "url": key.replace("/", "%2F").replace("+", "%2B").replace("=", "%3D"),
        "slash escaped": key.replace("/", "\\/"),
    }


@pytest.mark.parametrize("form", sorted(everywhere(KEY)))
def test_no_form_of_a_key_survives(form: str) -> None:
    text = everywhere(KEY)[form]
    cleaned = Redactor([KEY]).text(text)
    assert MARK in cleaned
    assert KEY[8:20] not in cleaned and base64.b64encode(KEY.encode()).decode()[8:24] not in cleaned


def test_a_key_with_quotes_and_newlines_leaves_valid_json() -> None:
    key = 'odd"key\\with\nall of it'
    line = Redactor([key]).line({key: [key, {"deep": json.dumps(key)}], "n": 1})
    told = json.loads(line)
    assert told == {MARK: [MARK, {"deep": f'"{MARK}"'}], "n": 1}


def test_text_without_a_key_is_left_alone() -> None:
    assert Redactor([KEY]).data(b"\xff plain \xc3\xa9") == b"\xff plain \xc3\xa9"
    assert Redactor([]).text(KEY) == KEY


def test_a_key_that_ordinary_text_would_hold_is_refused() -> None:
    with pytest.raises(UsageError):
        Redactor(["short"])


def test_the_journal_keeps_what_is_new_and_gives_every_body_back_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Redactor([]))
    tools = [{"name": "bash", "description": "x" * 5000}]
    messages: list[dict[str, Any]] = []
    sent = []
    for turn in range(30):
        messages = [*messages, {"role": "user", "content": f"{turn} " + "y" * 3000}]
        sent.append({"model": "m", "system": "s" * 4000, "tools": tools, "messages": messages})
        journal.write("request", {"path": "/v1/messages"}, sent[-1])
    other = {"model": "m", "messages": [{"role": "user", "content": "something else"}]}
    journal.write("request", {}, other)
    journal.write("request", {}, sent[-1])
    journal.close()
    assert [*bodies(journal.path).values()] == [*sent, other, sent[-1]]
    # 465 repetitions of 3000 characters would be 1.4 MB
    assert journal.path.stat().st_size < 250_000


def test_a_journal_cut_short_by_a_crash_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Redactor([]))
    journal.write("request", {"path": "a"})
    journal.close()
    with journal.path.open("a") as stream:
        stream.write('{"n": 2, "kind": "requ')
    again = Journal(tmp_path, Redactor([]))
    assert again.write("request", {"path": "b"}) == 2
    again.close()
    assert [json.loads(line)["path"] for line in journal.path.read_text().splitlines()] == ["a", "b"]


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm " * 40, "signature": "sig"},
        {"type": "text", "text": "grüße " * 30},
        {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "echo " + "x" * 200}},
        {"type": "redacted_thinking", "data": "abc"},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 12, "cache_read_input_tokens": 5, "output_tokens": 34},
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_message_survives_its_events_however_they_are_cut(size: int) -> None:
    stream = b"".join(sse.events(MESSAGE))
    splitter, assembler = sse.Splitter(), sse.Assembler()
    for start in range(0, len(stream), size):
        for event in splitter.feed(stream[start : start + size]):
            assembler.feed(sse.parse(event))
    told = assembler.record()
    assert assembler.complete
    assert (told["content"], told["usage"], told["stop_reason"]) == (MESSAGE["content"], MESSAGE["usage"], "tool_use")


def test_input_that_broke_off_is_kept_as_text() -> None:
    assembler = sse.Assembler()
    start = {"type": "tool_use", "id": "t", "name": "bash", "input": {}}
    assembler.feed({"type": "content_block_start", "content_block": start})
    assembler.feed({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"comm'}})
    assert assembler.record()["content"] == [start | {"input_text": '{"comm'}]


def test_faults_belong_to_the_answer_after_them(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines: list[dict[str, Any]] = [
        {"error": {"status": 529, "times": 2}},
        {"content": [{"type": "text", "text": "a"}]},
        {"delay_s": 1, "disconnect_after": 3, "times": 4, "content": [{"type": "tool_use", "name": "x", "input": {}}]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = script.load(path)
    assert (first.turn, first.stop_reason, [(f.kind, f.times) for f in first.faults]) == (0, "end_turn", [("error", 2)])
    assert (second.turn, second.stop_reason) == (1, "tool_use")
    assert [(f.kind, f.times) for f in second.faults] == [("disconnect_after", 4), ("delay_s", 4)]


@pytest.mark.parametrize("text", ['{"contents": []}\n', "", "[]\n", '{"match": {}}\n'])
def test_a_script_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(UsageError):
        script.load(tmp_path / "s.jsonl")


def conversation(seconds: str, path: str, call: str, word: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": f"Work in {path}", "cache_control": {}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": f"{word} {seconds}"}]},
        ]
    }


def test_strict_replay_overlooks_ids_paths_and_times_but_not_words() -> None:
    one = script.key(conversation("took 1.25 s", "/tmp/abc/work", "toolu_1", "ok"))
    same = script.key(conversation("took 17.5 s", "/job/work", "toolu_99", "ok"))
    other = script.key(conversation("took 1.25 s", "/tmp/abc/work", "toolu_1", "failed"))
    assert one == same and one["turn"] == 1
    assert one["sha256"] != other["sha256"]
    assert "failed" in script.difference(one, other)


def test_room_holds_no_more_than_its_slots_and_bytes() -> None:
    async def work(size: int) -> list[int]:
        room, held, seen = Room(slots=3, total=100), 0, []

        async def one() -> None:
            nonlocal held
            async with room.held(size):
                held += 1
                seen.append(held)
                await asyncio.sleep(0.01)
                held -= 1

        await asyncio.gather(*(one() for _ in range(12)))
        return seen

    assert max(asyncio.run(work(40))) == 2, "bytes"
    assert max(asyncio.run(work(1))) == 3, "slots"


def test_a_full_queue_refuses_at_once() -> None:
    async def work() -> None:
        room = Room(slots=1, total=10, waiting=1)
        await room.take(1)
        waiting = asyncio.create_task(room.take(1))
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await room.take(1)
        await room.give(1)
        await waiting

    asyncio.run(work())


CONFIG = {
    "schema_version": 1, "job": "c", "arm": "baseline", "model": "claude-opus-5", "socket": "s", "journal": "j",
    "upstream": {"kind": "replay"}, "knowledge": {"kind": "none"}, "budgets": {"usd": 1, "turns": None},
}  # fmt: skip


def read(tmp_path: Path, **told: Any) -> config.Config:
    (tmp_path / "gateway.json").write_text(json.dumps(CONFIG | told))
    return config.read(tmp_path)


def test_a_configuration_is_read_with_its_defaults(tmp_path: Path) -> None:
    told = read(tmp_path)
    assert told.budgets == {"wall_s": None, "turns": None, "tokens": None, "usd": 1.0, "kb_calls": None}
    assert told.socket == tmp_path / "s" and told.shown_tools == () and told.rates
    assert read(tmp_path, arm="with_kb", knowledge={"kind": "local"}).shown_tools == config.KB_TOOLS


@pytest.mark.parametrize(
    "told",
    [
        {"schema_version": 2},
        {"arm": "other"},
        {"arm": "with_kb"},
        {"knowledge": {"kind": "local"}},
        {"budgets": {"turn": 3}},
        {"budgets": {"turns": -1}},
        {"budgets": {"usd": "much"}},
        {"upstream": {"kind": "openai"}},
        {"model": ""},
        {"expected_tools": []},
        {"prices": {"as_of": "x", "models": {"m": {}}}},
    ],
)
def test_a_configuration_that_is_wrong_is_refused(tmp_path: Path, told: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, **told)


def test_a_money_budget_without_a_price_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="price"):
        config.needed(read(tmp_path, model="claude-unheard-of"), {})
    config.needed(read(tmp_path, model="claude-unheard-of", budgets={"turns": 3}), {})


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({"upstream": {"kind": "anthropic"}}, "ANTHROPIC_API_KEY"),
        ({"upstream": {"kind": "bedrock"}}, "AWS_BEARER_TOKEN_BEDROCK"),
        ({"arm": "with_kb", "knowledge": {"kind": "leeroopedia"}}, "LEEROOPEDIA_API_KEY"),
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, told: dict[str, Any], key: str) -> None:
    with pytest.raises(PrerequisiteError, match=key):
        config.needed(read(tmp_path, **told), {})
    config.needed(read(tmp_path, **told), {key: KEY})


@pytest.mark.parametrize("line", [KEY, json.dumps([KEY]), json.dumps({"ANTHROPIC_API_KEY": 3}), json.dumps({KEY: KEY})])
def test_keys_that_cannot_be_read_are_not_quoted(line: str) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as stream:
        stream.write(line + "\n")
    with open(reader, "rb") as stream, pytest.raises(UsageError) as caught:
        config.secrets(stream)
    assert KEY not in str(caught.value)


def test_keys_that_never_come_are_not_waited_for_without_end() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "w"), pytest.raises(UsageError, match="no keys came"):
        config.secrets(stream, wait_s=0.05)


def test_the_gateway_and_the_knowledge_base_name_the_same_tools() -> None:
    from repro.knowledge import tools

    assert sorted(tool.name for tool in tools.TOOLS) == sorted(config.KB_TOOLS)
