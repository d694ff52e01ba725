"""The eight tools, and others that a caller adds, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, InputRequiredResult, TextContent, Tool

from repro import __version__
from repro.knowledge import tools
from repro.knowledge.tools import Answer, ToolSpec, library
from repro.system.jsonio import Json

# Equal for every kind, so that an agent cannot tell its arm from the name.
NAME = "knowledge"
INSTRUCTIONS = "Pages to search and quote. Tools cite pages as [page-id]; get_page returns a whole page."


class Server(MCPServer[None]):
    """An MCPServer with the list `tools.TOOLS` as it is, instead of one derived from Python signatures.

    more: further tools, and what answers their calls.
    """

    def __init__(self, kind: str, more: Mapping[ToolSpec, Callable[[Json], Answer]] | None = None) -> None:
        super().__init__(NAME, instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
        self.kind = kind
        self.listed = [*tools.TOOLS, *(more or {})]
        self.more = {tool.name: answer for tool, answer in (more or {}).items()}
        library(kind)

    async def list_tools(self) -> list[Tool]:
        return [
            Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema) for tool in self.listed
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, object], context: Context[None, object] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Answer a call. A wrong call is a result with is_error, which the model can read and correct."""
        if name in self.more:
            answer = await run_sync(self.more[name], arguments)
        else:
            answer = await run_sync(tools.call, name, arguments, self.kind)
        return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.is_error)
