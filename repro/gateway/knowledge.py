"""The eight knowledge tools behind /mcp, with each call counted, timed and journaled.

The agent sees one MCP server over HTTP, whichever knowledge base answers: the tool's own pages, unrelated pages
(placebo), or the remote service. The remote service's own MCP server runs as a child of the gateway, and only that
child receives its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Protocol

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from repro.errors import PrerequisiteError, ReproError
from repro.gateway.config import KB_TOOLS, REMOTE, Config, KnowledgeSpec
from repro.gateway.redact import Redactor
from repro.system.importing import version

START_S = 60.0
# The remote server reports its failures as plain text.
SOFT_ERROR = re.compile(
    r"\s*(?:API error:|Authentication error:|Unexpected error:|.{0,80}(?:Rate limit|Insufficient credits|timed out))",
    re.IGNORECASE,
)
CITATION = re.compile(r"\[([\w.+-]+(?:/[\w.+-]+)+|[A-Z]\w*_\w+)\](?!\()")


@dataclass(frozen=True)
class Consulted:
    """A tool's answer. hits: pages that it cites. failed: the call failed, whether or not the answer says so."""

    text: str
    hits: tuple[str, ...] = ()
    is_error: bool = False
    failed: bool = False


class Knowledge(Protocol):
    """A knowledge base."""

    tools: list[types.Tool]

    async def call(self, name: str, arguments: dict[str, Any]) -> Consulted:
        """Answer one call. Raises nothing except on cancellation."""


class Pages:
    """Pages that ship with the tool. kind: `local` or `placebo`. One thread answers all calls."""

    def __init__(self, kind: str) -> None:
        from repro.knowledge import tools

        self._kind, self._call = kind, tools.call
        self._thread = ThreadPoolExecutor(1, "knowledge")
        self.tools = [types.Tool(name=t.name, description=t.description, input_schema=t.input_schema)
                      for t in tools.TOOLS]  # fmt: skip

    async def warm(self) -> None:
        """Read the pages, so that the first call is as fast as others. Raises UsageError for a broken page."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._call, "get_page", {}, self._kind)

    async def call(self, name: str, arguments: dict[str, Any]) -> Consulted:
        """See Knowledge.call."""
        try:
            answer = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._call, name, arguments, self._kind
            )
        except Exception as error:  # our own faults must reach the journal and not end the job
            return Consulted(f"The knowledge base failed: {type(error).__name__}.", is_error=True, failed=True)
        return Consulted(answer.text, tuple(answer.hits), answer.is_error, answer.is_error)

    def close(self) -> None:
        """Release the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Remote:
    """The published service, through its own MCP server. If that has ended, every answer says so."""

    def __init__(self, client: Client, tools: list[types.Tool], redactor: Redactor) -> None:
        self._client, self._redactor = client, redactor
        self.tools = tools

    async def call(self, name: str, arguments: dict[str, Any]) -> Consulted:
        """See Knowledge.call."""
        try:
            result = await self._client.call_tool(name, arguments)
        except (MCPError, OSError, ValueError, RuntimeError) as error:
            why = self._redactor.text(f"{type(error).__name__}: {error}")
            return Consulted(f"The knowledge server failed: {why}", is_error=True, failed=True)
        parts = [part.text for part in result.content if isinstance(part, types.TextContent)]
        text = self._redactor.text("\n".join(parts))
        wrong = bool(result.is_error)
        hits = tuple(dict.fromkeys(CITATION.findall(text)))
        return Consulted(text, hits, wrong, wrong or bool(SOFT_ERROR.match(text)))


def _installed() -> None:
    name, pinned = REMOTE
    found = version(name)
    if found != pinned:
        raise PrerequisiteError(
            f"the knowledge base leeroopedia needs {name}=={pinned}", f"found {found or 'none'}",
            "Build an image with that package, or choose --kb local.",
        )  # fmt: skip


def _tail(errors: IO[str], redactor: Redactor) -> str:
    errors.seek(0)
    return redactor.text(" ".join(errors.read().split())[-300:])


@contextlib.asynccontextmanager
async def _remote(spec: KnowledgeSpec, key: str, redactor: Redactor) -> AsyncIterator[Remote]:
    _installed()
    # Only the child receives the key. It gets our path, so that it finds the package that was checked here.
    env = {"LEEROOPEDIA_API_KEY": key, "PYTHONPATH": ":".join(filter(None, sys.path))}
    env |= {"LEEROOPEDIA_API_URL": spec.url} if spec.url else {}
    command = StdioServerParameters(
        command=sys.executable, args=["-c", "from leeroopedia_mcp.server import main; main()"], env=env
    )
    async with contextlib.AsyncExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        client = Client(stdio_client(command, errlog=errors), mode="legacy")
        try:
            async with asyncio.timeout(START_S):
                await stack.enter_async_context(client)
                listed = (await client.list_tools()).tools
        except (MCPError, OSError, TimeoutError, RuntimeError, ExceptionGroup) as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            why = redactor.text(f"{type(error).__name__}: {error} {_tail(errors, redactor)}")
            # The service may be away for a while, so this may be retried, unlike a missing package.
            raise ReproError("the knowledge server leeroopedia did not start", why, "Check its key.") from None
        tools = [tool for tool in listed if tool.name in KB_TOOLS]
        if missing := sorted(set(KB_TOOLS) - {tool.name for tool in tools}):
            raise PrerequisiteError("the knowledge server leeroopedia lacks tools", ", ".join(missing), "")
        yield Remote(client, tools, redactor)


@contextlib.asynccontextmanager
async def started(config: Config, keys: dict[str, str], redactor: Redactor) -> AsyncIterator[Knowledge]:
    """Run the knowledge base of a job.

    Raises PrerequisiteError, UsageError, and ReproError for a server that does not start.
    """
    kind = config.knowledge.kind
    if kind == "leeroopedia":
        async with _remote(config.knowledge, keys["LEEROOPEDIA_API_KEY"], redactor) as remote:
            yield remote
    else:
        pages = Pages(kind)
        try:
            await pages.warm()
            yield pages
        finally:
            pages.close()


async def timed(
    knowledge: Knowledge, name: str, arguments: dict[str, Any], timeout_s: float
) -> tuple[Consulted, float]:
    """Return the answer to one call and its duration, s. A call that exceeds timeout_s is an error."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await knowledge.call(name, arguments)
    except TimeoutError:
        text = f"The knowledge base timed out after {timeout_s:g} s."
        answer = Consulted(text, is_error=True, failed=True)
    return answer, time.monotonic() - began
