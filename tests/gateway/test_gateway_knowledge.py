"""/mcp on a running gateway, by MCP's own client: tools, calls, budgets, slow and dead knowledge servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_job import BASH, KB, KB_TOOLS, KEY, Job, custom
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from repro.gateway.knowledge import CITATION, SOFT_ERROR


@contextlib.asynccontextmanager
async def connected(job: Job, mode: str = "auto") -> AsyncIterator[Client]:
    transport = httpx2.AsyncHTTPTransport(uds=str(job.socket))
    async with httpx2.AsyncClient(transport=transport, timeout=30) as http:
        async with Client(streamable_http_client("http://gateway/mcp", http_client=http), mode=mode) as client:
            yield client


def with_client(job: Job, work: Callable[[Client], Coroutine[Any, Any, Any]], mode: str = "auto") -> Any:
    async def run() -> Any:
        async with connected(job, mode) as client:
            return await work(client)

    return asyncio.run(run())


def call(job: Job, name: str = "search_knowledge", **arguments: Any) -> tuple[str, bool]:
    """One call of a tool: its text, and whether it is an error."""
    told = with_client(job, lambda client: client.call_tool(name, arguments or {"query": "online softmax"}))
    return "\n".join(part.text for part in told.content), bool(told.is_error)


def knowing(kind: str = "local", **told: Any) -> Job:
    arm = "placebo" if kind == "placebo" else "with_kb"
    return Job(arm=arm, knowledge={"kind": kind, **told.pop("knowledge", {})}, **told)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("kind", ["local", "placebo"])
def test_the_eight_tools_are_listed_and_answer_to_old_and_new_clients(kind: str, mode: str) -> None:
    async def work(client: Client) -> tuple[list[str], str]:
        listed = (await client.list_tools()).tools
        told = await client.call_tool("search_knowledge", {"query": "online softmax"})
        return [tool.name for tool in listed], told.content[0].text

    with knowing(kind) as job:
        names, text = with_client(job, work, mode)
        assert sorted(names) == sorted(KB_TOOLS) and text
        line = job.lines("kb")[0]
        assert (line["tool"], line["arguments"]) == ("search_knowledge", {"query": "online softmax"})
        assert line["hits"] == len(line["pages"]) and line["text"] == text and line["latency_s"] >= 0
        meter = job.meter()["kb"]
        assert (meter["calls"], meter["errors"], len(meter["latency_s"])) == (1, 0, 1)


def test_the_arm_without_knowledge_has_no_mcp() -> None:
    with Job() as job, pytest.raises(BaseException):  # noqa: B017, PT011 (the client's own group of errors)
        call(job)
    with Job() as job, job.http() as http:
        assert http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status_code == 404


@pytest.mark.slow
def test_local_and_placebo_give_different_answers() -> None:
    with knowing() as local, knowing("placebo") as placebo:
        assert call(local)[0] != call(placebo)[0]


@pytest.mark.slow
def test_a_bad_call_is_an_error_of_the_tool_and_is_counted() -> None:
    with knowing() as job:
        for name, arguments in (("search_knowledge", {"wrong": 1}), ("rm_rf", {"x": "y"})):
            text, is_error = call(job, name, **arguments)
            assert is_error and text
        assert job.meter()["kb"] | {"latency_s": []} == {"calls": 2, "hits": 0, "errors": 2, "latency_s": []}


@pytest.mark.slow
def test_knowledge_calls_end_on_their_budget_and_the_agent_goes_on() -> None:
    with knowing(budgets={"kb_calls": 3}) as job:
        with ThreadPoolExecutor(6) as pool:
            told = list(pool.map(lambda _: call(job), range(6)))
        assert sorted(is_error for _, is_error in told) == [False] * 3 + [True] * 3
        assert all("used up" in text for text, is_error in told if is_error)
        meter = job.meter()
        assert meter["kb"]["calls"] == 3 and meter["denied"] == {"budget:kb_calls": 3} and meter["stopped"] == ""
        assert job.post(tools=[BASH, *KB]).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_streams_and_sessions_that_would_stay_open_are_not_offered(method: str) -> None:
    with knowing() as job, job.http() as http:
        assert http.request(method, "/mcp", headers={"accept": "text/event-stream"}).status_code == 405


def test_a_call_that_is_no_mcp_is_answered_and_journaled() -> None:
    with knowing() as job, job.http() as http:
        assert http.post("/mcp", content=b"{").status_code >= 400
        assert http.post("/mcp", content=b"x" * 5_000_000).status_code == 413
        assert [line["path"] for line in job.lines("request")] == ["/mcp", "/mcp"]


# A package of the published server's name and version, which behaves as its environment says.
SERVER = """
import asyncio, os, sys
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

NAMES = {names!r}
KEY = os.environ["LEEROOPEDIA_API_KEY"]
ADDRESS = os.environ.get("LEEROOPEDIA_API_URL", "")

async def listed(context, params):
    return types.ListToolsResult(tools=[types.Tool(name=n, description=n, input_schema={{"type": "object"}})
                                        for n in NAMES])

async def called(context, params):
    query = (params.arguments or {{}}).get("query", "")
    if query == "die":
        os._exit(3)
    if query == "sleep":
        await asyncio.sleep(60)
    text = {{"limit": "Rate limit exceeded. Retry after 5 seconds.", "api": "API error: Connection error",
            "credits": "Insufficient credits: 0", "late": "Search timed out (t1). Try again.",
            "key": "your key " + KEY}}.get(query, "Use tiles [Topic/Tiling] and [Softmax_Online] at " + ADDRESS)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

async def run():
    server = Server("fake", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

def main():
    print("starting with", KEY, file=sys.stderr)
    if ADDRESS == "refuse":
        sys.exit("Configuration error: " + KEY)
    asyncio.run(run())
"""


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Puts the package where a gateway finds it; returns the gateway's environment."""

    def made(version: str = "0.1.9", names: list[str] = KB_TOOLS) -> dict[str, str]:
        module, about = tmp_path / "leeroopedia_mcp", tmp_path / f"leeroopedia_mcp-{version}.dist-info"
        module.mkdir()
        about.mkdir()
        (module / "__init__.py").write_text("")
        (module / "server.py").write_text(textwrap.dedent(SERVER.format(names=names)))
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: leeroopedia-mcp\nVersion: {version}\n")
        return {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    return made


def remote(env: dict[str, str], **told: Any) -> Job:
    return knowing("leeroopedia", keys={"LEEROOPEDIA_API_KEY": KEY}, env=env, **told)


@pytest.mark.slow
def test_the_published_server_is_bridged_and_alone_has_its_key(package: Callable[..., dict[str, str]]) -> None:
    with remote(package(), knowledge={"url": "http://kb.example"}) as job:
        text, is_error = call(job)
        assert not is_error and "http://kb.example" in text
        assert job.lines("kb")[0]["pages"] == ["Topic/Tiling", "Softmax_Online"]
        leaked, _ = call(job, query="key")
        assert leaked == "your key [redacted]"
        assert job.process is not None
        assert KEY not in Path(f"/proc/{job.process.pid}/environ").read_bytes().decode()
        assert job.end() == 0
        assert KEY not in (job.journal_dir / "journal.jsonl").read_text() + job.out + job.err


@pytest.mark.slow
def test_failures_that_come_as_ordinary_text_are_counted_as_errors(package: Callable[..., dict[str, str]]) -> None:
    with remote(package()) as job:
        for query in ("limit", "api", "credits", "late", "fine"):
            assert call(job, query=query)[1] is False
        assert [line["error"] for line in job.lines("kb")] == [True, True, True, True, False]
        assert job.meter()["kb"]["errors"] == 4


@pytest.mark.slow
def test_a_slow_knowledge_server_costs_one_call_and_not_the_job(package: Callable[..., dict[str, str]]) -> None:
    with remote(package(), knowledge={"timeout_s": 1}) as job:
        text, is_error = call(job, query="sleep")
        assert is_error and "timed out" in text
        assert call(job) == (call(job)[0], False)
        assert job.meter()["kb"]["errors"] == 1


@pytest.mark.slow
def test_every_answer_reports_a_dead_knowledge_server(package: Callable[..., dict[str, str]]) -> None:
    with remote(package(), knowledge={"timeout_s": 5}) as job:
        assert call(job, query="die")[1] and call(job, query="again")[1]
        assert [line["error"] for line in job.lines("kb")] == [True, True]
        assert job.post(tools=[BASH, *KB]).status_code == 200
        assert job.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "told", "said", "code"),
    [
        (None, {}, "leeroopedia-mcp==0.1.9: found none", 1),
        ({"version": "0.1.6"}, {}, "found 0.1.6", 1),
        ({"names": KB_TOOLS[:-1]}, {}, "lacks tools: get_page", 1),
        ({}, {"url": "refuse"}, "did not start", 2),
    ],
)
def test_a_knowledge_server_that_cannot_serve_is_refused_before_ready(
    package: Callable[..., dict[str, str]], made: Any, told: dict[str, str], said: str, code: int
) -> None:
    """Exit code 1 where a second attempt would find the same, 2 where the server's service may come back."""
    job = remote(package(**made) if made is not None else {}, knowledge=told)
    process = job.start()
    out, err = process.communicate(timeout=90)
    job.__exit__()
    assert process.returncode == code and out == "" and said in err and KEY not in err
    assert len(err.splitlines()) == 1


def test_failure_words_inside_an_answer_are_no_failure() -> None:
    answer = "Kernels wait for memory. " * 10 + "A launch that timed out, or an API error: see [Topic/Watchdog]."
    assert not SOFT_ERROR.match(answer) and CITATION.findall(answer) == ["Topic/Watchdog"]
    assert SOFT_ERROR.match("Rate limit exceeded. Retry after 9 seconds.")


def test_a_placebo_arm_is_held_to_the_same_tools() -> None:
    with knowing("placebo") as job:
        assert job.post(tools=[BASH, custom("mcp__kb__get_page")]).status_code == 403
        assert job.post(tools=[BASH, *KB]).status_code == 200
        assert json.loads((job.journal_dir / "meter.json").read_text())["denied"] == {"kb_tools_missing": 1}
