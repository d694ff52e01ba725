"""The knowledge base over the Model Context Protocol: a real process and a real client."""

import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

from repro import config
from repro.knowledge import tools
from repro.knowledge.server import Server
from repro.system import jsonio

KINDS = ("local", "placebo")
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_lists_and_calls_all_eight(kind):
    async def talk():
        async with Client(Server(kind)) as client:
            return await every_call(client, kind)

    assert len(anyio.run(talk)) == 8


def test_both_kinds_show_an_agent_the_same_server_byte_for_byte():
    """Tools, names, instructions and capabilities: only the pages differ."""

    async def talk(kind):
        async with Client(Server(kind)) as client:
            listed = [tool.model_dump_json() for tool in (await client.list_tools()).tools]
            told = (client.server_info, client.instructions, client.server_capabilities)
            return listed, told[1], [part.model_dump_json() for part in (told[0], told[2])]

    assert anyio.run(talk, "local") == anyio.run(talk, "placebo")


def test_bad_and_hostile_calls_are_results_and_the_server_lives_on():
    wrong = [
        ("search_knowledge", {}),
        ("search_knowledge", {"query": 7}),
        ("search_knowledge", {"query": "x", "limit": 3}),
        ("get_page", {"page_id": "no-such-page"}),
        ("no_such_tool", {}),
    ]
    hostile = ["a" * 100_000, '"; DROP TABLE body; --', "\0\u202e归一化 🤖", "softmax NEAR( *"]

    async def talk():
        async with Client(Server("local")) as client:
            bad = [await client.call_tool(name, sent) for name, sent in wrong]
            odd = [await client.call_tool("search_knowledge", {"query": text}) for text in hostile]
            assert (await client.list_resources()).resources == []
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource(Path("/etc/passwd").as_uri())
            return bad, odd

    bad, odd = anyio.run(talk)
    assert all(result.is_error and result.content[0].text for result in bad)
    assert not any(result.is_error for result in odd)


def test_the_command_serves_pages_and_judges_kernels_from_any_folder(tmp_path, smoke_fixture):
    fixture = tmp_path / "results" / "fixtures" / "smoke-cpu" / "L1_36.json"
    fixture.parent.mkdir(parents=True)
    fixture.write_bytes(jsonio.render(smoke_fixture("L1_36").to_json()))
    (tmp_path / "empty.py").touch()
    words = [str(config.ROOT / "repro"), "knowledge"]
    started = StdioServerParameters(command=sys.executable, args=words, cwd=str(tmp_path),
                                    env={"REPRO_RESULTS": "results"})  # fmt: skip

    async def talk():
        async with Client(stdio_client(started)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            page = await client.call_tool("get_page", {"page_id": "softmax-online"})
            asked = ({"file": "empty.py", "problem": "L1_36"}, {"file": "no.py", "problem": "L1_36"}, {"file": "x"})
            return names, page, [await client.call_tool("evaluate", sent) for sent in asked]

    names, page, (verdict, *refused) = anyio.run(talk)
    assert names == [*CALLS, "evaluate"] and not page.is_error
    assert not verdict.is_error and "missing" in verdict.content[0].text, verdict
    assert all(answer.is_error for answer in refused) and "no.py" in refused[0].content[0].text
