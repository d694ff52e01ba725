"""What the body of a request may hold, rule by rule, on a running gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_job import BASH, HI, KB, MODEL, Job, custom, says

from repro.gateway import policy


@pytest.fixture(scope="module")
def baseline() -> Iterator[Job]:
    with Job([says("fine", match={"turn": 0}), says("fine", match={"turn": 1})]) as job:
        yield job


def message(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}]}


def result(*blocks: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", "content": list(blocks)}


def deep(levels: int) -> Any:
    return [] if levels == 0 else [deep(levels - 1)]


URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "http://192.0.2.1/x.png"}}
FILE_PDF = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
DENIED: list[tuple[str, str, dict[str, Any]]] = [
    ("another model", "model_denied", {"model": "claude-haiku-4-5-20251001"}),
    ("no model", "model_denied", {"model": None}),
    ("mcp_servers", "field_denied", {"mcp_servers": [{"type": "url", "url": "http://192.0.2.1", "name": "x"}]}),
    ("container", "field_denied", {"container": "c_1"}),
    ("fallbacks", "field_denied", {"fallbacks": [{"model": "m"}]}),
    ("thread", "field_denied", {"thread": {"type": "new"}}),
    ("inference_geo", "field_denied", {"inference_geo": "us"}),
    ("user_profile_id", "field_denied", {"user_profile_id": "p"}),
    ("an unknown field", "field_denied", {"surprise": 1}),
    ("fast mode", "field_denied", {"speed": "fast"}),
    ("priority tier", "field_denied", {"service_tier": "priority"}),
    ("web search", "tool_denied", {"tools": [{"type": "web_search_20260318", "name": "web_search"}]}),
    ("web fetch", "tool_denied", {"tools": [BASH, {"type": "web_fetch_20260318", "name": "web_fetch"}]}),
    ("code execution", "tool_denied", {"tools": [{"type": "code_execution_20260521", "name": "code_execution"}]}),
    ("tool search", "tool_denied", {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "s"}]}),
    ("mcp toolset", "tool_denied", {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}),
    ("computer use", "tool_denied", {"tools": [{"type": "computer_20251124", "name": "computer"}]}),
    ("computer toolset", "tool_denied", {"tools": [{"type": "computer_toolset_20260801", "name": "computer"}]}),
    ("browser", "tool_denied", {"tools": [{"type": "browser_toolset_20260801", "name": "browser"}]}),
    ("advisor", "tool_denied", {"tools": [{"type": "advisor_20260301", "name": "advisor"}]}),
    ("a tool whose type is no text", "tool_denied", {"tools": [{"type": {"a": 1}, "name": "x"}]}),
    ("a tool with a hidden part", "tool_denied", {"tools": [custom("x", mcp_server={"url": "http://192.0.2.1"})]}),
    ("a tool for server code", "tool_denied", {"tools": [custom("x", allowed_callers=["code_execution_20260120"])]}),
    ("a knowledge tool", "kb_in_baseline", {"tools": [BASH, custom("mcp__kb__search_knowledge")]}),
    ("a bare knowledge tool", "kb_in_baseline", {"tools": [custom("get_page")]}),
    ("a deferred knowledge tool", "kb_in_baseline", {"tools": [custom("mcp__x__get_page", defer_loading=True)]}),
    ("an image from the web", "source_denied", message(URL_IMAGE)),
    ("a document from the web", "source_denied", message(FILE_PDF | {"source": {"type": "url", "url": "http://x"}})),
    ("a file", "source_denied", message(FILE_PDF)),
    ("an image in a tool's result", "source_denied", message(result({"type": "text", "text": "x"}, URL_IMAGE))),
    ("a file in a tool's result", "source_denied", message(result(FILE_PDF))),
    ("an image within a document", "source_denied",
     message({"type": "document", "source": {"type": "content", "content": [URL_IMAGE]}})),
    ("a document within a document within a result", "source_denied",
     message(result({"type": "document", "source": {"type": "content", "content": [FILE_PDF]}}))),
    ("a source that is a text", "source_denied", message({"type": "image", "source": "http://192.0.2.1"})),
    ("an inline source with a URL beside it", "source_denied",
     message({"type": "image", "source": {"type": "base64", "data": "", "url": "http://192.0.2.1"}})),
    ("an image without a source", "source_denied", message({"type": "image"})),
    ("a server's tool use", "block_denied", message({"type": "server_tool_use", "id": "s", "name": "web_search",
                                                     "input": {}}, role="assistant")),
    ("a tool added within the conversation", "block_denied", message({"type": "tool_addition", "tool": {}})),
    ("an upload", "block_denied", message({"type": "container_upload", "file_id": "f"})),
    ("a block whose type is no text", "block_denied", message({"type": ["text"]})),
    ("an image in the system prompt", "source_denied", {"system": [URL_IMAGE]}),
    ("a search result", "block_denied", message({"type": "search_result", "source": "http://x", "content": []})),
    ("a field beside the content", "field_denied",
     {"messages": [{"role": "user", "content": "x", "output_config": {}}]}),
    ("an unknown role", "body_invalid", {"messages": [{"role": "tool", "content": "x"}]}),
    ("no messages", "body_invalid", {"messages": []}),
    ("max_tokens as text", "body_invalid", {"max_tokens": "many"}),
    ("stream as text", "body_invalid", {"stream": "yes"}),
    ("a body too deep", "body_invalid", message({"type": "tool_use", "id": "t", "name": "x", "input": deep(80)})),
    ("an unknown context edit", "field_denied", {"context_management": {"edits": [{"type": "fetch_20260101"}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "body"), [d[1:] for d in DENIED], ids=[d[0] for d in DENIED])
def test_refused_in_the_shape_of_the_api_and_journaled(baseline: Job, code: str, body: dict[str, Any]) -> None:
    before = baseline.meter()
    answer = baseline.post(**body)
    told = answer.json()
    assert 400 <= answer.status_code < 500 and told["type"] == "error"
    assert told["error"]["message"].startswith("gateway: ") and told["error"]["message"].endswith(f"[{code}]")
    assert answer.headers["x-should-retry"] == "false"
    line = baseline.lines("request")[-1]
    assert (line["decision"], line["code"], line["status"]) == ("denied", code, answer.status_code)
    after = baseline.meter()
    assert after["denied"][code] == before["denied"].get(code, 0) + 1
    assert after["requests"] == before["requests"] and after["turns"] == before["turns"]


INLINE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("a plain request", {}),
    ("the client's own tools", {"tools": [
        BASH, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "memory_20250818", "name": "memory"}, custom("Read", type="custom"), custom("mcp__other__thing")]}),
    ("inline images, also in results", {"messages": [*HI, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "bash", "input": {"source": {"type": "url", "url": "http://x"}}}]},
        {"role": "user", "content": [result(INLINE), INLINE]}]}),
    ("thinking, effort, caching, context edits", {
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]},
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}),
    ("the plain tier", {"service_tier": "auto", "speed": "standard", "metadata": {"user_id": "x"}}),
]  # fmt: skip


@pytest.mark.parametrize("body", [a[1] for a in ALLOWED], ids=[a[0] for a in ALLOWED])
def test_honest_requests_pass(baseline: Job, body: dict[str, Any]) -> None:
    answer = baseline.post(**body)
    assert answer.status_code == 200, answer.text


PATHS = [
    ("GET", "/", 404, "path_denied"), ("GET", "/v1/models", 404, "path_denied"), ("POST", "/mcp", 404, "path_denied"),
    ("GET", "/mcp", 404, "path_denied"), ("POST", "/v1/messages/batches", 404, "path_denied"),
    ("POST", "/v1/files", 404, "path_denied"), ("POST", "//v1/messages", 404, "path_denied"),
    ("POST", "/v1/messages/", 404, "path_denied"), ("GET", "/v1/messages", 405, "method_denied"),
    ("PUT", "/v1/messages", 405, "method_denied"), ("POST", "/v1/messages?betas=x", 400, "query_denied"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status", "code"), PATHS)
def test_only_the_three_paths_exist(baseline: Job, method: str, path: str, status: int, code: str) -> None:
    with baseline.http() as http:
        answer = http.request(method, path, json={})
    assert answer.status_code == status and f"[{code}]" in answer.json()["error"]["message"]
    assert baseline.lines("request")[-1]["code"] == code


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000, b'"x"'])
def test_a_body_that_is_no_object_is_refused(baseline: Job, raw: bytes) -> None:
    with baseline.http() as http:
        answer = http.post("/v1/messages", content=raw)
    assert answer.status_code == 400 and "[body_invalid]" in answer.text


def test_a_body_over_the_limit_is_refused_announced_or_not(baseline: Job) -> None:
    size = 33 * 1024 * 1024

    def chunks() -> Iterator[bytes]:
        for _ in range(33):
            yield b" " * 1024 * 1024

    with baseline.http() as http:
        for content in (b" " * size, chunks()):
            answer = http.post("/v1/messages", content=content)
            assert answer.status_code == 413 and "[body_too_large]" in answer.text


def test_a_compressed_body_is_refused(baseline: Job) -> None:
    with baseline.http() as http:
        answer = http.post("/v1/messages", content=b"x", headers={"content-encoding": "gzip"})
    assert answer.status_code == 415


def test_doubled_fields_reach_the_provider_as_the_gateway_read_them(baseline: Job) -> None:
    tools = json.dumps([{"type": "web_search_20260318", "name": "w"}])
    raw = f'{{"model": "{MODEL}", "max_tokens": 9, "messages": {json.dumps(HI)}, "tools": {tools}, "tools": []}}'
    with baseline.http() as http:
        assert http.post("/v1/messages", content=raw.encode()).status_code == 200
    line = baseline.lines("request")[-1]
    assert line["body"]["tools"] == []


def test_more_tokens_than_a_reply_may_have_are_capped_and_said_so() -> None:
    with Job(max_tokens=500) as job:
        assert job.post(max_tokens=100_000).status_code == 200
        line = job.lines("request")[-1]
    assert line["changes"] == ["max_tokens 100000 -> 500"] and line["body"]["max_tokens"] == 500


def test_unknown_headers_and_betas_do_not_pass() -> None:
    told = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "context-management-2025-06-27,mcp-client-2025-11-20, files-api-2025-04-14,effort-2025-11-24",
        "x-forwarded-for": "1.2.3.4",
        "authorization": "Bearer mine",
    }
    passed, dropped = policy.headers(told)
    assert passed == {
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
        "anthropic-beta": "context-management-2025-06-27,effort-2025-11-24",
    }
    assert dropped == ["mcp-client-2025-11-20", "files-api-2025-04-14"]
    assert policy.headers({"anthropic-version": "x\r\nevil: 1"})[0]["anthropic-version"] == policy.DEFAULT_VERSION


def with_kb(**told: Any) -> Job:
    return Job(arm="with_kb", knowledge={"kind": "local"}, **told)


def test_an_arm_with_knowledge_spends_nothing_until_the_model_sees_the_tools() -> None:
    with with_kb() as job:
        for tools in ([BASH], [BASH, *KB[:-1]], [BASH, *[t | {"defer_loading": True} for t in KB]]):
            answer = job.post(tools=tools)
            assert answer.status_code == 403 and "[kb_tools_missing]" in answer.text
        assert job.meter()["requests"] == 0
        assert job.post(tools=[BASH, *KB]).status_code == 200
        # only the first request is held to it
        assert job.post(tools=[BASH]).status_code == 200
        assert job.meter()["denied"] == {"kb_tools_missing": 3}


def test_the_study_may_expect_no_tools() -> None:
    with with_kb(expect_tools=[]) as job:
        assert job.post(tools=[BASH]).status_code == 200


def test_tokens_are_counted_under_the_same_rules(baseline: Job) -> None:
    turns = baseline.meter()["turns"]
    counted = baseline.post("/v1/messages/count_tokens", max_tokens=None)
    assert counted.json() == {"input_tokens": counted.json()["input_tokens"]} and counted.json()["input_tokens"] > 0
    denied = baseline.post("/v1/messages/count_tokens", max_tokens=None, **message(URL_IMAGE))
    assert denied.status_code == 400 and "[source_denied]" in denied.text
    assert baseline.meter()["turns"] == turns
