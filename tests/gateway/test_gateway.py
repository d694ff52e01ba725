"""The gateway as a process: the way to the provider and back, what goes wrong on it, budgets, keys, and its end."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from gateway_job import BASH, HI, KEY, MODEL, ROOT, Job, chained, says

from repro.gateway import journal as journals

TOOL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "nvidia-smi; echo 'ä\n'"}}
TURN = {"content": [{"type": "text", "text": "I look at it first. " * 20}, TOOL], "stop_reason": "tool_use"}


def ask(job: Job, messages: list[Any] | None = None, *, stream: bool = False, **more: Any) -> anthropic.types.Message:
    """One message by the SDK; its own retries off."""
    told: dict[str, Any] = {"model": MODEL, "max_tokens": 500, "messages": messages or HI}
    with job.client(**more) as client:
        if not stream:
            return client.messages.create(**told)
        with client.messages.stream(**told) as events:
            return events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
def test_a_scripted_conversation_reaches_the_sdk_whole(stream: bool) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 4000}
    with Job([TURN | {"usage": usage}, says("done", usage=usage)]) as job:
        first = ask(job, stream=stream)
        assert [block.to_dict()["type"] for block in first.content] == ["text", "tool_use"]
        assert first.content[1].to_dict()["input"] == TOOL["input"] and first.stop_reason == "tool_use"
        answered = [
            *HI,
            {"role": "assistant", "content": [block.to_dict() for block in first.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "H200"}]},
        ]
        assert ask(job, answered, stream=stream).content[0].to_dict()["text"] == "done"
        meter = job.settled(turns=2)
        assert meter["tokens"] == {
            "input": 2000, "output": 200, "cache_read": 8000, "cache_write_5m": 0, "cache_write_1h": 0,
        }  # fmt: skip
        # (2000*5 + 200*25 + 8000*0.50) / 1e6
        assert meter["usd"] == pytest.approx(0.019)
        lines = job.lines("request")
        assert lines[0]["response"]["content"] == TURN["content"]
        assert [line["decision"] for line in lines] == ["allowed", "allowed"]
        assert list(journals.bodies(job.journal_dir / "journal.jsonl").values())[-1]["messages"] == answered


def test_the_real_way_puts_the_key_in_and_takes_the_agents_headers_out() -> None:
    with chained([says("hello")]) as (job, url):
        assert ask(job, stream=True).content[0].to_dict()["text"] == "hello"
        with job.client() as client:
            assert client.messages.count_tokens(model=MODEL, messages=HI).input_tokens == 7
        with job.http() as http:
            body = {"model": MODEL, "max_tokens": 9, "messages": HI}
            betas = {"anthropic-beta": "context-management-2025-06-27,files-api-2025-04-14"}
            assert http.post("/v1/messages?beta=true", json=body, headers=betas).status_code == 200
        seen = httpx2.get(url).json()["seen"]
        assert [request["path"] for request in seen] == [
            "/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true",
        ]  # fmt: skip
        for request in seen:
            headers = request["headers"]
            assert headers["x-api-key"] == KEY and "authorization" not in headers and "repro-c1" not in str(headers)
            assert not [name for name in headers if name.startswith("x-stainless")]
            assert headers["accept-encoding"] == "identity" and headers["user-agent"] == "repro-gateway"
        assert seen[2]["headers"]["anthropic-beta"] == "context-management-2025-06-27"
        assert seen[0]["body"]["messages"] == HI


def test_bedrock_is_reached_by_its_bearer_token() -> None:
    told = {"keys": {"AWS_BEARER_TOKEN_BEDROCK": KEY}, "model": "us.anthropic.claude-opus-4-6-v1"}
    with chained([says("hello")], upstream={"kind": "bedrock"}, **told) as (job, url):
        assert job.post(model=told["model"]).json()["content"][0]["text"] == "hello"
        headers = httpx2.get(url).json()["seen"][0]["headers"]
        assert headers["authorization"] == f"Bearer {KEY}" and "x-api-key" not in headers
        # 10 in, 5 out, at the list price of claude-opus-4-6
        assert job.meter()["usd"] == pytest.approx((10 * 5 + 5 * 25) / 1e6)


@pytest.mark.slow
def test_events_are_passed_on_as_they_come() -> None:
    with chained([says("a" * 480, pause_s=0.15)]) as (job, _), job.client() as client:
        began, seen = time.monotonic(), []
        with client.messages.stream(model=MODEL, max_tokens=9, messages=HI) as events:
            seen = [time.monotonic() - began for event in events if event.type == "text"]
        assert len(seen) == 10 and seen[0] < 1.5 and seen[-1] - seen[0] > 1.0


@pytest.mark.slow
def test_a_provider_that_fails_for_a_moment_is_asked_again() -> None:
    statuses = (408, 409, 429, 500, 503, 529)
    faults = [{"status": status, "headers": {"retry-after": "0.05"}} for status in statuses]
    steps = [step for fault in faults for step in (fault, fault, says("at last"))]
    with chained([*steps, *steps]) as (job, _):
        for n in range(2 * len(statuses)):
            assert ask(job, stream=n < len(statuses)).content[0].to_dict()["text"] == "at last"
        meter = job.settled(turns=12)
        assert (meter["retries"], meter["provider_errors"]) == (24, {str(status): 4 for status in statuses})
        attempts = [line["attempts"] for line in job.lines("request")]
        assert attempts == [[{"status": status, "waited_s": 0.05}] * 2 for status in (*statuses, *statuses)]


def test_a_refusal_of_the_provider_is_passed_on_at_once() -> None:
    statuses = (400, 401, 403, 404, 413)
    with chained([{"status": status, "error": "because"} for status in statuses]) as (job, url):
        for status in statuses:
            with pytest.raises(anthropic.APIStatusError, match="because") as caught:
                ask(job, max_retries=5)
            assert caught.value.status_code == status
        assert len(httpx2.get(url).json()["seen"]) == 5
        assert job.meter()["provider_errors"] == {str(status): 1 for status in statuses}
        assert job.meter()["turns"] == 0


def test_a_provider_that_keeps_failing_ends_in_one_error_that_the_sdk_does_not_repeat() -> None:
    with chained([{"status": 529}]) as (job, url):
        with pytest.raises(anthropic.APIStatusError) as caught:
            ask(job, max_retries=5)
        assert caught.value.status_code == 529
        assert len(httpx2.get(url).json()["seen"]) == 3  # once, and twice again as QUICK says
        assert job.meter()["provider_errors"] == {"529": 3}


@pytest.mark.clock
def test_a_wait_longer_than_patience_is_not_begun() -> None:
    retry = {"attempts": 5, "base_s": 0.01, "longest_s": 1, "total_s": 5}
    with chained([{"status": 429, "headers": {"retry-after": "3600"}}], retry=retry) as (job, _):
        began = time.monotonic()
        with pytest.raises(anthropic.RateLimitError):
            ask(job)
        assert time.monotonic() - began < 4 and job.meter()["retries"] == 0


def test_a_connection_lost_before_the_first_byte_is_tried_again() -> None:
    with chained([{"cut": 0}, says("second"), says("lost", cut=1), {"cut": 0}, says("third")]) as (job, _):
        assert ask(job, stream=True).content[0].to_dict()["text"] == "second"
        # an answer in one piece has shown the agent nothing before it is whole
        assert ask(job).content[0].to_dict()["text"] == "third"
        assert job.settled(turns=2)["provider_errors"] == {"disconnect": 3}


def test_a_connection_lost_in_the_middle_is_an_error_and_not_an_answer() -> None:
    usage = {"input_tokens": 1000}
    with chained([says("a" * 400, cut=5, usage=usage), says("whole")]) as (job, _):
        with pytest.raises(anthropic.APIStatusError, match=r"upstream:disconnect"):
            ask(job, stream=True)
        meter = job.settled(provider_errors={"disconnect": 1})
        # the provider told its input before it went: that is counted, the turn is not
        assert meter["turns"] == 0 and meter["tokens"]["input"] == 1000
        line = job.lines("request")[0]
        assert line["error"] == "disconnect" and line["response"]["content"][0]["text"].startswith("aaa")
        assert ask(job, stream=True).content[0].to_dict()["text"] == "whole"


def test_an_error_event_of_the_provider_reaches_the_agent_and_the_meter() -> None:
    events = [
        {"type": "message_start", "message": {"id": "m", "model": MODEL, "usage": {"input_tokens": 3}, "content": []}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ]
    with chained([{"content": [], "events": events}]) as (job, _):
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            ask(job, stream=True)
        assert job.settled(provider_errors={"overloaded_error": 1})["turns"] == 0


def test_an_unreachable_provider_is_reported_plainly() -> None:
    told = {"keys": {"ANTHROPIC_API_KEY": KEY}, "upstream": {"kind": "anthropic", "base_url": "http://127.0.0.1:9"}}
    with Job(**told) as job, pytest.raises(anthropic.APIStatusError, match=r"upstream:connect"):
        ask(job)


def test_replayed_faults_take_the_same_way() -> None:
    lines = [{"error": {"status": 529, "retry_after": 0.02, "times": 2}}, {"delay_s": 0.3}, says("first"),
             {"disconnect_after": 3, "times": 1}, says("second " * 30)]  # fmt: skip
    with Job(lines) as job:
        began = time.monotonic()
        assert ask(job, stream=True).content[0].to_dict()["text"] == "first"
        assert time.monotonic() - began > 0.3
        then = [*HI, {"role": "assistant", "content": "first"}, *HI]
        with pytest.raises(anthropic.APIStatusError, match="disconnect"):
            ask(job, then, stream=True)
        assert ask(job, then, stream=True).content[0].to_dict()["text"].startswith("second")
        after = [*then, {"role": "assistant", "content": "second"}, *HI]
        with pytest.raises(anthropic.BadRequestError, match="replay_ended"):
            ask(job, after)
        assert job.settled(turns=2)["provider_errors"] == {"529": 2, "disconnect": 1, "400": 1}


def test_a_script_can_choose_its_answer_by_what_was_said() -> None:
    lines = [says("wrong", match={"turn": 0, "contains": "error"}), says("right", match={"turn": 0, "contains": 'ok"'})]
    with Job(lines) as job:
        assert ask(job, [{"role": "user", "content": 'all "ok"'}]).content[0].to_dict()["text"] == "right"
        with pytest.raises(anthropic.BadRequestError, match="replay_mismatch"):
            ask(job, [{"role": "user", "content": "neither"}])


def test_a_recording_replays_strictly_and_differences_are_a_diff(tmp_path: Path) -> None:
    then = [
        *HI,
        {"role": "assistant", "content": [{"type": "text", "text": "first"}]},
        {"role": "user", "content": "x"},
    ]
    steps = [says("first"), says("second", usage={"output_tokens": 77})]
    with chained(steps, upstream={"record": True}) as (job, _):
        ask(job, stream=True)
        ask(job, then)
        job.settled(turns=2)
        recorded = [json.loads(line) for line in (job.journal_dir / "record.jsonl").read_text().splitlines()]
    with Job(recorded, upstream={"kind": "replay", "script": "replay.jsonl", "mode": "strict"}) as job:
        assert ask(job).content[0].to_dict()["text"] == "first"
        assert ask(job, then).usage.output_tokens == 77
        with pytest.raises(anthropic.BadRequestError, match=r'(?s)differs from the recording.*-.*"x".*\+.*"y"'):
            ask(job, [*then[:2], {"role": "user", "content": "y"}])


BUDGETS: list[tuple[dict[str, Any], str, int]] = [
    ({"turns": 2}, "budget:turns", 2),
    ({"tokens": 250}, "budget:tokens", 3),
    ({"usd": 0.0025}, "budget:usd", 3),
    ({"turns": 0}, "budget:turns", 0),
]


@pytest.mark.parametrize(("limits", "code", "answered"), BUDGETS)
def test_a_spent_budget_ends_an_agent_that_would_ask_for_ever(limits: Any, code: str, answered: int) -> None:
    # one turn: 80 in and 20 out, 80*5 + 20*25 = 900 per million USD
    line = says("again", match={"turn": 0}, usage={"input_tokens": 80, "output_tokens": 20})
    with Job([line], budgets=limits) as job:
        done = 0
        with pytest.raises(anthropic.BadRequestError, match=code) as caught:
            while done < 10:
                ask(job, stream=bool(done % 2), max_retries=5)
                done += 1
        assert done == answered
        assert caught.value.response.headers["x-should-retry"] == "false"
        meter = job.meter()
        assert (meter["stopped"], meter["turns"], meter["denied"]) == (code, answered, {code: 1})
        assert job.lines("request")[-1]["code"] == code
        # counting tokens and further requests end the same way
        assert job.post("/v1/messages/count_tokens", max_tokens=None).status_code == 400


@pytest.mark.slow
def test_the_wall_budget_runs_from_the_first_request() -> None:
    with Job([says("x", match={"turn": 0})], budgets={"wall_s": 0.8}) as job:
        time.sleep(1.0)
        ask(job)
        time.sleep(1.0)
        with pytest.raises(anthropic.BadRequestError, match="budget:wall"):
            ask(job)
        assert job.meter()["stopped"] == "budget:wall"


def test_requests_sent_together_do_not_pass_the_limit_of_turns() -> None:
    lines = [{"delay_s": 0.2, "times": 20, **says("x", match={"turn": 0})}]
    with Job(lines, budgets={"turns": 3}) as job, ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(lambda _: job.post().status_code, range(12)))
        assert sorted(codes) == [200] * 3 + [400] * 9
        assert job.meter()["turns"] == 3


def test_an_agent_that_goes_before_the_end_still_pays_for_the_answer() -> None:
    with chained([says("a" * 480, pause_s=0.05, usage={"output_tokens": 120})]) as (job, _):
        with job.client() as client, client.messages.stream(model=MODEL, max_tokens=9, messages=HI) as events:
            next(iter(events))
        meter = job.settled(turns=1)
        assert meter["tokens"]["output"] == 120
        assert job.lines("request")[0]["agent_gone"] is True


def forms(key: str) -> list[str]:
    return [key, base64.b64encode(key.encode()).decode(), json.dumps(key)[1:-1], key.encode().hex()]


def test_a_planted_key_is_found_nowhere() -> None:
    nasty = json.dumps({"note": f"the key is {KEY}", "b64": base64.b64encode(f"x:{KEY}".encode()).decode()})
    steps = [
        {"status": 401, "error": f"invalid x-api-key {KEY}"},
        says(f"your key is {KEY}"),
        says(nasty, cut=4),
        says(nasty),
    ]
    with chained(steps, upstream={"record": True}) as (job, _):
        with pytest.raises(anthropic.AuthenticationError) as caught:
            ask(job)
        texts = [str(caught.value)]
        texts.append(str(ask(job, stream=True)))
        with pytest.raises(anthropic.APIStatusError) as lost:
            ask(job, [{"role": "user", "content": nasty}], stream=True)
        texts.append(str(lost.value))
        texts.append(ask(job, [{"role": "user", "content": f"tell {KEY}"}]).to_json())
        job.post(model=KEY)
        with job.http() as http:
            http.get(f"/{KEY}")
            http.post("/v1/messages", content=f"not json {KEY}".encode(), headers={"anthropic-beta": KEY})
        assert job.process is not None
        pid = job.process.pid
        texts += [Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("environ", "cmdline")]
        assert job.end() == 0
        texts += [job.out, job.err]
        files = [path for path in job.folder.rglob("*") if path.is_file()]
        assert {"journal.jsonl", "meter.json", "record.jsonl"} <= {path.name for path in files}
        texts += [path.read_text() for path in files]
        for text in texts:
            assert not [form for form in forms(KEY) if form in text]
            assert base64.b64encode(f"x:{KEY}".encode()).decode()[4:30] not in text
        assert any("[redacted]" in text for text in texts)
        for line in (job.journal_dir / "journal.jsonl").read_text().splitlines():
            json.loads(line)


def test_killed_in_the_middle_of_a_request_the_journal_can_be_read_and_names_it() -> None:
    with chained([says("ok"), says("a" * 480, pause_s=0.3)]) as (job, _):
        ask(job)
        job.settled(turns=1)
        with job.client() as client, client.messages.stream(model=MODEL, max_tokens=9, messages=HI) as events:
            next(iter(events))
            assert job.end(signal.SIGKILL) == -signal.SIGKILL
        finished = {line["id"] for line in job.lines("request")}
        assert [line["path"] for line in job.lines("open") if line["id"] not in finished] == ["/v1/messages"]
        assert job.meter()["turns"] == 1
        # one that is started again takes the socket over and goes on counting
        with job:
            ask(job)
            assert job.settled(turns=2)["requests"] >= 2
            job.end()


@pytest.mark.clock
def test_sigterm_ends_it_cleanly_in_the_middle_of_a_request() -> None:
    with chained([says("a" * 4800, pause_s=0.3, usage={"input_tokens": 44})]) as (job, _), job.client() as client:
        with client.messages.stream(model=MODEL, max_tokens=9, messages=HI) as events:
            next(iter(events))
            began = time.monotonic()
            assert job.end() == 0
            assert time.monotonic() - began < 8  # Docker waits 10 s
        assert job.lines("request")[-1]["error"] == "interrupted"
        assert job.lines()[-1]["kind"] == "stop" and job.meter()["tokens"]["input"] == 44
        assert not job.socket.exists() and (job.out, job.err) == ("", "")


def test_sigterm_ends_it_cleanly_while_it_waits_for_the_provider() -> None:
    with Job([{"delay_s": 60}, says("x")]) as job, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job.post)
        while not job.lines("open"):
            time.sleep(0.02)
        assert job.end() == 0 and (job.out, job.err) == ("", "")
        assert waiting.result().status_code == 503
        assert job.lines("request")[-1]["error"] == "interrupted"


def _catches(pid: int, number: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & 1 << (number - 1))


def test_sigterm_before_it_listens_ends_it_too() -> None:
    job = Job()
    process = subprocess.Popen(
        [sys.executable, "-m", "repro.gateway", str(job.folder)], cwd=ROOT, stdin=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 30
    while not _catches(process.pid, signal.SIGTERM):  # it waits for its keys then
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    out, err = process.communicate(timeout=20)
    shutil.rmtree(job.folder)
    assert (process.returncode, out, err) == (0, "", "")


def test_an_idle_gateway_ends_at_once_and_says_nothing_but_ready() -> None:
    with Job() as job:
        assert stat.S_IMODE(job.socket.stat().st_mode) == 0o666
        assert job.end() == 0 and (job.out, job.err) == ("", "")
        assert [line["kind"] for line in job.lines()] == ["start", "stop"]


@pytest.mark.slow
def test_two_gateways_do_not_mix() -> None:
    def talk(job: Job, name: str) -> list[str]:
        return [str(ask(job, [{"role": "user", "content": name}], stream=bool(n % 2)).content) for n in range(15)]

    with Job([says("from one", match={"turn": 0})]) as one, Job([says("from two", match={"turn": 0})]) as two:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(talk, one, "I am one"), pool.submit(talk, two, "I am two")
            assert all("from one" in text for text in first.result())
            assert all("from two" in text for text in second.result())
        for job, other in ((one, "two"), (two, "one")):
            assert job.settled(turns=15)["requests"] == 15
            assert f"I am {other}" not in (job.journal_dir / "journal.jsonl").read_text()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


@pytest.mark.slow
def test_twenty_large_requests_at_once_are_answered_in_bounded_memory() -> None:
    lines = [{"delay_s": 0.6, "times": 40, **says("x", match={"turn": 0})}]
    with Job(lines) as job, ThreadPoolExecutor(20) as pool:
        assert job.process is not None
        before = resident_mb(job.process.pid)
        big = [{"role": "user", "content": "b" * 8_000_000}]
        codes = list(pool.map(lambda n: job.post(messages=big, stream=bool(n % 2)).status_code, range(20)))
        assert codes == [200] * 20
        grown = resident_mb(job.process.pid) - before
        assert job.settled(turns=20)["requests"] == 20
        # measured: 190 MB with room for 8 requests of 64 MB together, 430 MB without a bound
        assert grown < 300, grown


@pytest.mark.slow
def test_requests_beyond_a_full_queue_are_asked_to_retry() -> None:
    lines = [{"delay_s": 4.0, "times": 8, **says("x", match={"turn": 0})}]
    with Job(lines) as job, ThreadPoolExecutor(90) as pool, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(job.http()) for _ in range(90)]  # which takes seconds on a busy machine
        answers = list(pool.map(lambda client: job.post(by=client), clients))
        told = [answer for answer in answers if answer.status_code != 200]
        assert told and {answer.status_code for answer in told} == {529}
        assert told[0].headers["x-should-retry"] == "true" and told[0].headers["retry-after"] == "1"
        meter = job.settled(turns=90 - len(told))
        assert meter["denied"] == {"busy": len(told)}


def test_a_redirect_of_the_provider_is_not_followed() -> None:
    with chained([{"status": 302, "headers": {"location": "http://192.0.2.1/"}}]) as (job, _):
        answer = job.post()
        assert answer.status_code == 302 and "location" not in answer.headers
        assert job.meter()["provider_errors"] == {"302": 1} and job.meter()["turns"] == 0


def test_a_second_gateway_on_the_same_socket_is_refused() -> None:
    with Job() as job:
        told = subprocess.run(
            [sys.executable, "-m", "repro.gateway", str(job.folder)], cwd=ROOT, input="{}\n", capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert told.returncode == 1 and "is in use" in told.stderr
        assert ask(job).content


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"upstream": {"kind": "anthropic"}}, "ANTHROPIC_API_KEY"),
    ({"model": "claude-unheard-of", "budgets": {"usd": 1}}, "--prices"),
    ({"upstream": {"kind": "replay", "script": "nowhere.jsonl"}}, "script"),
    ({"arm": "with_kb"}, "knowledge"),
]


@pytest.mark.parametrize(("told", "said"), REFUSED)
def test_invalid_configurations_are_refused_in_one_line_before_ready(told: dict[str, Any], said: str) -> None:
    job = Job(**told)
    process = job.start()
    out, err = process.communicate(timeout=60)
    job.__exit__()
    assert process.returncode == 1 and out == "" and said in err
    assert err.startswith("repro: ") and len(err.splitlines()) == 1


@pytest.fixture
def slow_reader() -> Iterator[Job]:
    with chained([says("a" * 200_000)]) as (job, _):
        yield job


def test_an_agent_that_reads_slowly_does_not_hold_up_another(slow_reader: Job) -> None:
    with slow_reader.client() as client, client.messages.stream(model=MODEL, max_tokens=9, messages=HI) as events:
        next(iter(events))
        done = threading.Event()
        threading.Thread(target=lambda: (ask(slow_reader, stream=True), done.set()), daemon=True).start()
        assert done.wait(20)


def test_the_tools_of_an_agent_pass_unchanged() -> None:
    with chained([says("hello")]) as (job, url):
        assert job.post(tools=[BASH]).status_code == 200
        assert httpx2.get(url).json()["seen"][0]["body"]["tools"] == [BASH]
