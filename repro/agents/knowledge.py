"""The knowledge base as Inspect's tools: pages of this project, or an MCP server, with a log of every call."""

from __future__ import annotations

import inspect
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.to_thread import run_sync
from inspect_ai.tool import Tool, ToolDef, ToolError, ToolParams, mcp_server_http, mcp_server_stdio

from repro import config
from repro.errors import EngineError, PrerequisiteError
from repro.knowledge import tools
from repro.knowledge.tools import Answer
from repro.records.agent import KnowledgeUse
from repro.system.importing import version
from repro.system.jsonio import Json

#: The name of the tools' server in every arm that has one.
SERVER = "knowledge"
#: The published server: package and version (requirements/leeroopedia.in).
PUBLISHED = ("leeroopedia-mcp", "0.1.9")
#: Longest call, seconds: the published server answers with models of its own.
CALL_S = 340.0
CITATION = re.compile(r"\[([A-Za-z0-9][\w./-]{2,80})\]")
#: How the published server words a failure in an ordinary answer.
SOFT_ERROR = re.compile(r"(?i)\s*(error:|api error|rate limit|insufficient credits|.{0,40}timed out)")
ARGUMENT_CHARS = 2000
#: The log of a sitting in its folder of the bundle.
LOG = "knowledge.jsonl"


@dataclass
class Log:
    """The calls of one sitting. most: how many are answered, None for no limit."""

    most: int | None
    calls: list[Json] = field(default_factory=list)

    def used(self) -> dict[str, KnowledgeUse]:
        """Return the calls by tool."""
        return {tool: self.total(tool) for tool in dict.fromkeys(call["tool"] for call in self.calls)}

    def total(self, tool: str = "") -> KnowledgeUse:
        """Return the calls of one tool, or of all. A refused call counts as denied only."""
        of = [call for call in self.calls if tool in ("", call["tool"])]
        made = [call for call in of if not call["denied"]]
        return KnowledgeUse(
            calls=len(made), hits=sum(len(call["hits"]) for call in made), errors=sum(call["error"] for call in made),
            denied=len(of) - len(made),
        )  # fmt: skip


Asked = Callable[[Json], Awaitable[Answer]]


@asynccontextmanager
async def offered(kind: str, log: Log) -> AsyncIterator[list[Tool]]:
    """Yield the tools of a knowledge base: none, local, placebo, leeroopedia, or the address of an MCP server.

    Raises EngineError if a server does not answer.
    """
    if kind == "none":
        yield []
    elif kind in ("local", "placebo"):
        found = []
        for spec in tools.TOOLS:
            parameters = ToolParams.model_validate(spec.input_schema)
            found.append(_logged(spec.name, spec.description, parameters, _pages(spec.name, kind), log))
        yield found
    else:
        try:
            served = [ToolDef(tool) for tool in await _server(kind).tools()]
        except Exception as error:  # of the client, the transport or the server
            raise EngineError(
                f"the knowledge server {kind} does not answer", f"{type(error).__name__}: {error}"
            ) from error
        yield [_logged(tool.name, tool.description, tool.parameters, _remote(tool), log) for tool in served]


def check(kind: str) -> None:
    """Raise PrerequisiteError if the published server's package is not installed here in its version."""
    name, due = PUBLISHED
    if kind == "leeroopedia" and (found := version(name)) != due:
        raise PrerequisiteError(
            f"the knowledge base leeroopedia needs {name}=={due}", f"found {found or 'none'}",
            "Run `pip install --require-hashes -r requirements/leeroopedia.txt`, or choose --kb local.",
        )  # fmt: skip


def _server(kind: str) -> Any:
    if kind != "leeroopedia":
        return mcp_server_http(url=kind)
    # Only this child receives the key. It gets our path, so that it finds the package that was checked.
    env = {"LEEROOPEDIA_API_KEY": config.secret("LEEROOPEDIA_API_KEY"), "PYTHONPATH": config.python_path()}
    code = "from leeroopedia_mcp.server import main; main()"
    return mcp_server_stdio(name=SERVER, command=sys.executable, args=["-c", code], env=env)


def _pages(name: str, kind: str) -> Asked:
    return lambda arguments: run_sync(tools.call, name, arguments, kind)


def _remote(tool: ToolDef) -> Asked:
    async def ask(arguments: Json) -> Answer:
        try:
            with anyio.fail_after(CALL_S):
                result = await tool.tool(**arguments)
        except TimeoutError:
            return Answer(f"The knowledge base timed out after {CALL_S:g} s.", is_error=True)
        except ToolError as error:
            return Answer(str(error), is_error=True)
        parts = result if isinstance(result, list) else [result]
        text = "\n".join(part if isinstance(part, str) else getattr(part, "text", "") for part in parts)
        return Answer(text, tuple(dict.fromkeys(CITATION.findall(text))), bool(SOFT_ERROR.match(text)))

    return ask


def _logged(name: str, description: str, parameters: ToolParams, ask: Asked, log: Log) -> Tool:
    """Return a tool that answers by `ask` and logs each call."""

    async def execute(**arguments: Any) -> str:
        arguments = {key: value for key, value in arguments.items() if value is not None}
        call = {"tool": name, "arguments": {key: str(value)[:ARGUMENT_CHARS] for key, value in arguments.items()},
                "hits": [], "error": False, "denied": False, "wall_s": 0.0}  # fmt: skip
        spent = log.most is not None and sum(not made["denied"] for made in log.calls) >= log.most
        log.calls.append(call)
        if spent:
            call["denied"] = True
            raise ToolError(f"All {log.most} calls of the knowledge base are used up.")
        begin = time.monotonic()
        answer = await ask(arguments)
        call |= {"hits": list(answer.hits), "error": answer.is_error, "wall_s": round(time.monotonic() - begin, 3)}
        if answer.is_error:
            raise ToolError(answer.text)
        return answer.text

    # Inspect reads a tool's arguments from its signature.
    known = [
        inspect.Parameter(argument, inspect.Parameter.KEYWORD_ONLY, annotation=str,
                          default=inspect.Parameter.empty if argument in parameters.required else None)
        for argument in parameters.properties
    ]  # fmt: skip
    execute.__signature__ = inspect.Signature(known, return_annotation=str)  # type: ignore[attr-defined]
    execute.__annotations__ = dict.fromkeys(parameters.properties, str) | {"return": str}
    return ToolDef(execute, name, description, parameters).as_tool()
