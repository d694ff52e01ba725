"""Checks before an agent's first request: no network except the gateway, and exactly its arm's tools."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from repro.agents.relay import UNREACHABLE, Relay
from repro.agents.task import Task
from repro.agents.tools_knowledge import Knowledge, KnowledgeError

TIMEOUT_S = 30.0
IFF_UP = 1


class Unfit(Exception):
    """The job cannot measure what it should; the text says why. Not the agent's fault."""


def check(task: Task, relay: Relay) -> tuple[Knowledge | None, dict[str, Any]]:
    """Run all checks. Return the knowledge tools (None in an arm without them) and what was seen.

    Raises Unfit.
    """
    # Agents can read this, so it must not name the arm.
    seen: dict[str, Any] = {"isolation": task.isolation}
    if task.isolation == "container":
        seen["interfaces_up"] = ways_out()
        if seen["interfaces_up"]:
            raise Unfit(f"this container has a network: {', '.join(seen['interfaces_up'])} is up")
    if task.expect_tools:
        knowledge = Knowledge(f"{relay.url}/mcp", task.options.tool_s)
        try:
            names = knowledge.discover(TIMEOUT_S)
        except KnowledgeError as error:
            raise Unfit(f"the arm {task.arm} needs the knowledge base, which does not answer: {error}") from error
        seen["tools"] = sorted(names)
        if sorted(names) != sorted(task.expect_tools):
            raise Unfit(f"the knowledge base has the tools {sorted(names)}; expected {sorted(task.expect_tools)}")
        return knowledge, seen
    status, body = _ask(relay, "/mcp")
    seen["mcp_status"] = status
    if status == 502 and UNREACHABLE in body:
        raise Unfit("the gateway cannot be reached: its socket accepts no connection")
    if status != 404:
        raise Unfit(f"the arm {task.arm} has no knowledge base, but /mcp answers {status}")
    return None, seen


def ways_out(proc: Path = Path("/proc/net"), classes: Path = Path("/sys/class/net")) -> list[str]:
    """Return the network interfaces beside `lo` that are up.

    Kernels may list tunnels in every namespace; these are down.
    """
    names = [line.partition(":")[0].strip() for line in (proc / "dev").read_text().splitlines() if ":" in line]
    return [name for name in names if name != "lo" and _is_up(classes / name / "flags")]


def _is_up(flags: Path) -> bool:
    try:
        return bool(int(flags.read_text(), 16) & IFF_UP)
    except (OSError, ValueError):
        return True  # unknown counts as up


def _ask(relay: Relay, path: str) -> tuple[int, str]:
    """Send one MCP request through the relay; return status and text. Raises Unfit."""
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=TIMEOUT_S)
    try:
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        connection.request("POST", path, body=message, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unfit(f"the gateway does not answer: {error}") from error
    finally:
        connection.close()
