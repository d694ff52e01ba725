"""The gateway against an agent that means it: requests that would lead out, cost more, or end it."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_job import HI, KB, KB_TOOLS, MODEL, Job, chained, says

from repro.gateway import journal as journals
from repro.gateway.app import MOST_VALUES, crowded
from repro.gateway.journal import Journal
from repro.gateway.redact import Redactor

MB = 1 << 20
PLAIN = json.dumps({"model": MODEL, "max_tokens": 9, "messages": HI})
FREE = {"arm": "with_kb", "knowledge": {"kind": "local"}}


def raw(job: Job, data: bytes, timeout_s: float = 10.0) -> bytes:
    """All that comes back on one connection."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(timeout_s)
        one.connect(str(job.socket))
        found = b""
        try:
            one.sendall(data)
            while chunk := one.recv(1 << 16):
                found += chunk
        except OSError:
            pass
        return found


def request(target: bytes = b"/v1/messages", body: str = PLAIN, head: bytes = b"", method: bytes = b"POST") -> bytes:
    """A request as it stands on the wire, closing its connection."""
    data = body.encode()
    first = b"%s %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n%s" % (method, target, head)
    return first + b"content-length: %d\r\n\r\n%s" % (len(data), data)


def status(answer: bytes) -> int:
    """The status of the first answer; 0 where the connection was hung up."""
    return int(answer[9:12] or 0)


@pytest.fixture(scope="module")
def job() -> Any:
    with Job([says("hello", match={"turn": 0})]) as one:
        yield one


def resident_mb(job: Job) -> float:
    assert job.process is not None
    text = Path(f"/proc/{job.process.pid}/status").read_text()
    return float(text.partition("VmHWM:")[2].split()[0]) / 1024


# -- ways to another place

TARGETS = (
    b"//v1/messages", b"/v1/messages/", b"/v1/messages/../files", b"/v1/x/../messages", b"/v1/messages%2fbatches",
    b"/v1/messages/%2e%2e/files", b"/v1/messages;x", b"/v1/messages%00", b"http://192.0.2.1/v1/messages",
    b"http://x/v1/files", b"192.0.2.1:443", b"*", b"/v1/messages?beta=true&x=1", b"/v1/messages?beta=true%26x",
    b"/mcp", b"/mcp/",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_no_spelling_of_a_path_leads_elsewhere(target: bytes, job: Job) -> None:
    before = job.meter()["requests"]
    assert status(raw(job, request(target))) in (400, 404)
    assert job.meter()["requests"] == before


CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PLAIN), PLAIN.encode())
HEAD = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n"
FRAMES = {
    "another method": request(method=b"DELETE"), "CONNECT": request(b"192.0.2.1:443", method=b"CONNECT"),
    "gzip": request(head=b"content-encoding: gzip\r\n"),
    "two lengths": HEAD + b"content-length: 4\r\ncontent-length: 9\r\n\r\n" + PLAIN.encode(),
    "a negative length": HEAD + b"content-length: -1\r\n\r\n" + PLAIN.encode(),
    "a signed length": HEAD + b"content-length: +9\r\n\r\n" + PLAIN.encode(),
    "an unknown coding": HEAD + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKED,
    "a NUL": request(b"/v1/messages\0"), "HTTP/0.9": b"GET /v1/messages\r\n\r\n", "HTTP/2": b"PRI * HTTP/2.0\r\n\r\n",
}  # fmt: skip


# to the last one the gateway leaves its connection open, ten seconds long
@pytest.mark.parametrize("name", [*list(FRAMES)[:-1], pytest.param("HTTP/2", marks=pytest.mark.slow)])
def test_malformed_requests_are_refused(name: str, job: Job) -> None:
    before = job.meter()["requests"]
    assert 400 <= status(raw(job, FRAMES[name])) < 500
    assert job.meter()["requests"] == before


def test_a_request_behind_another_is_held_to_the_same_rules(job: Job) -> None:
    """Pipelined, or smuggled in a body whose length and coding disagree: one is answered, the other refused."""
    before = job.meter()["requests"]
    first = request().replace(b"connection: close\r\n", b"")
    told = raw(job, first + request(b"/v1/files"))
    assert told.count(b"HTTP/1.1 200") == 1 and told.count(b"HTTP/1.1 404") == 1
    both = HEAD + b"connection: close\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKED
    assert raw(job, both + request(b"/v1/files")).count(b"HTTP/1.1 200") == 1
    assert job.settled(requests=before + 2)


def test_no_header_of_an_agent_becomes_one_of_the_gateway() -> None:
    with chained([says("hello")]) as (one, url):
        head = (b"anthropic-beta: context-management-2025-06-27\r\n x-api-key: evil\r\nx-api-key: evil\r\n"
                b"authorization: Bearer evil\r\nanthropic-version: 2023-06-01, evil\r\n")  # fmt: skip
        assert status(raw(one, request(head=head))) == 200
        (seen,) = httpx2.get(url).json()["seen"]
        assert "evil" not in str(seen["headers"])


# -- what a body says twice, or differently


def body(more: str) -> str:
    """A body with further fields."""
    return f"{PLAIN[:-1]},{more}}}"


SEARCH = '{"type":"web_search_20250305","name":"web_search"}'
BODIES = {
    "the model twice": body('"model":"evil"'), "tools twice": body(f'"tools":[],"tools":[{SEARCH}]'),
    "an escaped type": body(f'"tools":[{SEARCH.replace("search_", chr(92) + "u0073earch_")}]'),
    "an escaped key": body('"mcp_\\u0073ervers":[]'), "a key with a blank": body('"mcp_servers ":[]'),
    "a wide letter": body('"\uff54ools":[]'),
    "digits of another script": body(f'"tools":[{{"type":"bash_{chr(0xFF12) * 8}","name":"bash"}}]'),
    "a type that is a list": body('"tools":[{"type":["web_search_20250305"],"name":"x"}]'),
    "a type with a line break": body('"tools":[{"type":"bash_20250124\\n","name":"x"}]'),
    "a mark of byte order": "\ufeff" + PLAIN, "NaN": body('"top_p":NaN'), "an overflow": body('"top_p":1e999'),
    "an endless number": body(f'"top_k":{"9" * 5000}'), "depth": body(f'"metadata":{"[" * 99999}{"]" * 99999}'),
    "bytes that are no text": PLAIN.replace("hello", "\udcff"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_in_one_way(name: str, job: Job) -> None:
    before = job.meter()["requests"]
    data = BODIES[name].encode(errors="surrogateescape")
    head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(data)
    assert status(raw(job, head + data)) in (400, 403)
    assert job.meter()["requests"] == before


def test_a_body_in_another_coding_is_refused(job: Job) -> None:
    data = PLAIN.encode("utf-16")
    head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(data)
    assert status(raw(job, head + data)) == 400


# -- memory and disk


@pytest.mark.slow
@pytest.mark.parametrize("value", ["{}", "[]", '"ab"', "1e1"])
def test_a_body_of_many_values_is_refused_before_it_is_parsed(value: str) -> None:
    """31 MB of `{},` took 1.7 GB, more than twice what the gateway's container has."""
    text = f'"metadata":[{f"{value}," * (31 * MB // (len(value) + 1))}0]'
    with Job() as one, ThreadPoolExecutor(3) as pool:
        assert [status(a) for a in pool.map(lambda _: raw(one, request(body=body(text)), 60), range(3))] == [413] * 3
        assert resident_mb(one) < 300, resident_mb(one)
        assert one.meter()["denied"] == {"body_crowded": 3}


def test_a_long_text_is_not_many_values() -> None:
    code = 'x = {"a": [1, 2, 3], "b\\\\": {}}, ' * 40_000
    whole = json.dumps({"messages": [{"role": "user", "content": code}]}).encode()
    assert whole.count(b",") > MOST_VALUES // 2 and not crowded(whole * 3)
    assert crowded(b'["\\\\",' + b"[]," * MOST_VALUES) and crowded(b'["' + b'\\"' * 9 + b'",' + b"{}," * MOST_VALUES)


def test_idle_connections_are_bounded(job: Job) -> None:
    """Each takes memory of the gateway, and a program of an agent can open as many as it likes."""
    many = []
    try:
        for _ in range(1500):
            one = socket.socket(socket.AF_UNIX)
            many.append(one)
            one.connect(str(job.socket))
            one.setblocking(False)

        def still_open(one: socket.socket) -> bool:
            try:
                return one.recv(1) != b""
            except BlockingIOError:
                return True
            except OSError:
                return False

        deadline = time.monotonic() + 30
        while (open_now := sum(still_open(one) for one in many)) > 520:
            assert time.monotonic() < deadline, open_now
            time.sleep(0.5)
    finally:
        for one in many:
            one.close()
    time.sleep(1)
    assert status(raw(job, request())) == 200, "and then it goes on"


@pytest.mark.slow
def test_calls_that_are_refused_do_not_fill_the_disk() -> None:
    """Each refused call wrote its four megabytes into the journal."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    accept = {"accept": "application/json, text/event-stream"}
    with Job(**FREE, budgets={"kb_calls": 0}) as one, one.http() as http:
        for _ in range(5):
            told = call | {"params": {"name": KB_TOOLS[0], "arguments": {"query": "é" * MB}}}
            assert http.post("/mcp", json=told, headers=accept).status_code == 200
        assert (one.journal_dir / "journal.jsonl").stat().st_size < MB // 2
        assert one.meter()["denied"] == {"budget:kb_calls": 5} and one.meter()["kb"]["calls"] == 0


def test_a_full_journal_keeps_what_was_used_and_counts_refusals_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LARGEST", 2000)
    journal = Journal(tmp_path, Redactor([]))
    for n in range(20):
        journal.write("request", {"path": "/v1/messages", "id": f"a{n}", "decision": "denied", "excerpt": "x" * 500})
    journal.write("request", {"id": "last", "decision": "allowed", "tokens": {"input": 7}, "response": "y" * 500})
    journal.close()
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert len(lines) < 6 and lines[-1]["tokens"] == {"input": 7} and "response" not in lines[-1]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))


# -- budgets


@pytest.mark.slow
@pytest.mark.parametrize(("budgets", "most"), [({"usd": 0.05}, 2), ({"tokens": 2000}, 2), ({"turns": 3}, 3)])
def test_requests_at_once_do_not_pass_a_budget_by_more_than_one_reply(budgets: dict[str, Any], most: int) -> None:
    """Eight at once spent the budget eight times over: each was let in before any was counted. A reply of 1000 tokens
    in and out costs 0.03 USD here."""
    line = says("x", match={"turn": 0}, usage={"input_tokens": 1000, "output_tokens": 1000})
    with Job([{"delay_s": 0.4, "times": 40, **line}], budgets=budgets) as one, ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(lambda n: one.post(max_tokens=1000, stream=bool(n % 2)).status_code, range(12)))
        assert codes.count(200) <= most, codes
        assert one.settled(turns=codes.count(200))["stopped"] == f"budget:{next(iter(budgets))}"


@pytest.mark.slow
def test_requests_at_once_that_fit_the_budget_go_side_by_side() -> None:
    line = says("x", match={"turn": 0}, usage={"input_tokens": 100, "output_tokens": 10})
    with Job([{"delay_s": 1.0, "times": 40, **line}], budgets={"usd": 5.0}) as one, ThreadPoolExecutor(6) as pool:
        begin = time.monotonic()
        assert list(pool.map(lambda _: one.post().status_code, range(6))) == [200] * 6
        assert time.monotonic() - begin < 4


@pytest.mark.slow
def test_one_that_waits_for_its_turn_is_answered_when_the_gateway_ends() -> None:
    lines = [{"delay_s": 30, "times": 9, **says("x", match={"turn": 0})}]
    with Job(lines, budgets={"usd": 0.01}) as one:
        codes: list[int] = []
        threads = [threading.Thread(target=lambda: codes.append(one.post(max_tokens=1000).status_code))
                   for _ in range(3)]  # fmt: skip
        for each in threads:
            each.start()
        time.sleep(1)
        begin = time.monotonic()
        assert one.end() == 0 and time.monotonic() - begin < 8
        for each in threads:
            each.join(5)
        assert set(codes) <= {503} and one.err == ""


@pytest.mark.slow
def test_a_refused_request_is_no_failure_of_the_provider() -> None:
    """By a request that the provider must refuse an agent could have laid its own end at the provider's door."""
    steps: list[dict[str, Any]] = [{"status": 400, "error": "max_tokens: too small"}, says("hello"), {"status": 401}]
    with chained(steps) as (one, _):
        for code, failing in ((400, ""), (200, ""), (401, "401")):
            assert one.post().status_code == code and one.meter()["failing"] == failing
    with chained([{"status": 400, "error": "Your credit balance is too low to access the API"}]) as (one, _):
        assert one.post().status_code == 400 and one.meter()["failing"] == "400"


def test_aborted_answers_are_counted() -> None:
    line = says("x" * 2000, match={"turn": 0}, usage={"input_tokens": 1000, "output_tokens": 1000})
    with Job([line], budgets={"turns": 5}) as one:
        for _ in range(9):
            with socket.socket(socket.AF_UNIX) as gone:
                gone.connect(str(one.socket))
                gone.sendall(request(body=body('"stream":true')))
        assert one.settled(turns=5)["tokens"]["output"] == 5000


@pytest.mark.slow
def test_the_tools_of_the_other_arm_are_no_ones() -> None:
    with Job() as one:
        assert one.post(tools=KB).json()["error"]["message"].endswith("[kb_in_baseline]")
        deferred = [tool | {"defer_loading": True} for tool in KB]
        assert one.post(tools=deferred).status_code == 403
