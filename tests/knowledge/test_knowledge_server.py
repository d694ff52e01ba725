"""The knowledge base over the Model Context Protocol: a real process, a real client, over HTTP and over stdio."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

from repro import config
from repro.knowledge import tools

KINDS = ("local", "placebo")
COMMAND = [sys.executable, "-m", "repro.knowledge"]
CALLS = {
    "search_knowledge": {"query": "softmax of rows that do not fit a block", "context": "Triton"},
    "build_plan": {"goal": "a faster row reduction"},
    "review_plan": {"proposal": "sum in bf16 with atomics", "goal": "a fast sum"},
    "verify_code_math": {"code_snippet": "x = tl.load(p)", "concept_name": "softmax"},
    "diagnose_failure": {"symptoms": "it stops", "logs": "an illegal memory access was encountered"},
    "propose_hypothesis": {"current_status": "memory bound", "recent_experiments": "vector loads"},
    "query_hyperparameter_priors": {"query": "matmul in bf16"},
    "get_page": {"page_id": ""},  # filled in: each kind has other pages
}
FIRST = {"local": "softmax-online", "placebo": "soil-texture"}


@pytest.fixture(scope="module", params=KINDS)
def address(request):
    """(kind, URL) of a server process on a free port."""
    command = [*COMMAND, "--kind", request.param, "--http", "0"]
    with subprocess.Popen(command, cwd=config.ROOT, stdout=subprocess.PIPE, text=True) as server:
        yield request.param, server.stdout.readline().strip()
        server.terminate()
        server.wait(20)


@contextlib.asynccontextmanager
async def over_stdio(kind):
    """A client of a process that it starts itself."""
    started = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "--kind", kind], cwd=str(config.ROOT))
    async with Client(stdio_client(started)) as client:
        yield client


async def every_call(client, kind):
    """Lists the tools and calls each; the list as bytes."""
    listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == list(CALLS)
    for name, sent in CALLS.items():
        result = await client.call_tool(name, sent if name != "get_page" else {"page_id": FIRST[kind]})
        assert not result.is_error, name
        (content,) = result.content
        assert content.text == tools.call(name, sent if name != "get_page" else {"page_id": FIRST[kind]}, kind).text
        assert "[" in content.text
    return [tool.model_dump_json() for tool in listed]


def test_a_client_lists_and_calls_all_eight_over_http(address):
    kind, url = address

    async def talk():
        async with Client(url) as client:
            assert client.server_info.name == "knowledge"
            return await every_call(client, kind)

    assert len(anyio.run(talk)) == 8


def test_a_client_with_the_older_handshake_is_answered_as_well(address):
    kind, url = address

    async def talk():
        async with Client(url, mode="legacy") as client:
            return await every_call(client, kind)

    assert len(anyio.run(talk)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_lists_and_calls_all_eight_over_stdio(kind):
    async def talk():
        async with over_stdio(kind) as client:
            return await every_call(client, kind)

    assert len(anyio.run(talk)) == 8


@pytest.mark.slow
def test_both_kinds_show_an_agent_the_same_server_byte_for_byte():
    """Tools, names, instructions and capabilities: only the pages differ."""

    async def talk(kind):
        async with over_stdio(kind) as client:
            listed = [tool.model_dump_json() for tool in (await client.list_tools()).tools]
            told = (client.server_info, client.instructions, client.server_capabilities)
            return listed, told[1], [part.model_dump_json() for part in (told[0], told[2])]

    assert anyio.run(talk, "local") == anyio.run(talk, "placebo")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("search_knowledge", {}),
        ("search_knowledge", {"query": 7}),
        ("search_knowledge", {"query": "x", "limit": 3}),
        ("review_plan", {"goal": "x"}),
        ("get_page", {"page_id": "no-such-page"}),
        ("no_such_tool", {}),
    ],
)
def test_a_bad_call_is_a_result_with_is_error_and_the_server_lives_on(address, name, sent):
    kind, url = address

    async def talk():
        async with Client(url) as client:
            result = await client.call_tool(name, sent)
            good = await client.call_tool("get_page", {"page_id": FIRST[kind]})
            return result, good

    result, good = anyio.run(talk)
    assert result.is_error
    assert result.content[0].text
    assert not good.is_error


def test_eight_clients_at_once_get_the_same_answer(address):
    _, url = address

    async def talk():
        answers = []

        async def one():
            async with Client(url) as client:
                answers.append((await client.call_tool("search_knowledge", {"query": "rows"})).content[0].text)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
        return answers

    answers = anyio.run(talk)
    assert len(answers) == 8
    assert len(set(answers)) == 1


@pytest.mark.parametrize("text", ["a" * 100_000, '"; DROP TABLE body; --', "\0\u202e归一化 🤖", "softmax NEAR( *"])
def test_hostile_arguments_travel_and_are_answered(address, text):
    _, url = address

    async def talk():
        async with Client(url) as client:
            return await client.call_tool("search_knowledge", {"query": text})

    assert not anyio.run(talk).is_error


def _post(url, body, **headers):
    request = urllib.request.Request(url, body, {"content-type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"no json", {}, 400),
        (b"[" * 20_000, {}, 400),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(), {"host": "evil.example"}, 421),
    ],
)
def test_requests_outside_the_protocol_are_refused(address, body, headers, status):
    _, url = address
    accept = {"accept": "application/json, text/event-stream"}
    assert _post(url, body, **accept, **headers) == status


def test_other_paths_do_not_exist(address):
    _, url = address
    assert _post(url.replace("/mcp", "/pages"), b"{}") == 404


def test_no_file_can_be_read_as_a_resource(address):
    _, url = address

    async def talk():
        async with Client(url) as client:
            assert (await client.list_resources()).resources == []
            try:
                await client.read_resource(Path("/etc/passwd").as_uri())
            except MCPError as error:
                return str(error)

    assert "Unknown resource" in anyio.run(talk)


def test_server_and_tools_need_no_torch():
    code = "import sys, repro.knowledge.server as s; s.app('local'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=config.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_taken_port_is_an_error(address):
    _, url = address
    port = url.split(":")[2].split("/")[0]
    done = subprocess.run([*COMMAND, "--http", port], cwd=config.ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
