"""An agent's folder with a server in the gateway's place: what tests of the agents share."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conftest import ROOT

from repro.agents import task
from repro.agents.session import Session
from repro.agents.task import Task


def message(*content: dict[str, Any], stop: str = "", **usage: int) -> dict[str, Any]:
    """A step of the server: an answer of the model."""
    calls = any(block["type"] == "tool_use" for block in content)
    return {"content": list(content), "stop_reason": stop or ("tool_use" if calls else "end_turn"), "usage": usage}


def text(said: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": said}


def call(name: str, number: int = 1, **given: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


class Job:
    """A folder, an agent.json in it and a server behind its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.folder.mkdir()
        # below the folder of the test the path may be too long for a socket
        self.socket = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip()) / "gw.sock"
        self.pid_file = self.folder / "server.pid"
        self.journal = folder / "requests.jsonl"
        self.server: subprocess.Popen[bytes] | None = None

    def serve(self, steps: list[dict[str, Any]], *, mcp: bool = False) -> None:
        """Starts the server and waits until it listens."""
        told = self.folder.parent / "steps.json"
        told.write_text(json.dumps(steps))
        command = [sys.executable, str(ROOT / "tests" / "agent_gateway.py"), self.socket, told, self.journal]
        self.server = subprocess.Popen([*command, *(["mcp"] if mcp else [])], stderr=subprocess.DEVNULL)
        self.pid_file.write_text(str(self.server.pid))
        until = time.monotonic() + 30
        while not self.socket.exists() and time.monotonic() < until:
            assert self.server.poll() is None, "the server in the gateway's place did not start"
            time.sleep(0.02)

    def write(self, **changes: Any) -> Task:
        """Writes agent.json and reads it back."""
        data = {
            "schema_version": 1, "job": "c1", "agent": "sdk", "arm": "baseline", "model": "claude-opus-4-5-20251101",
            "problems": ["L1_36"], "size": "smoke", "device": "cpu", "mode": "problem", "knowledge": "none",
            "budgets": {"wall_s": 60}, "relay_port": 0, "expect_tools": [], "isolation": "processes",
            "socket": str(self.socket),
        }  # fmt: skip
        (self.folder / "agent.json").write_text(json.dumps(data | changes))
        return task.read(self.folder)

    def run(self, **changes: Any) -> dict[str, Any]:
        """One session in this process; returns its outcome."""
        session = Session(self.write(**changes))
        session.run()
        return self.outcome()

    def outcome(self) -> dict[str, Any]:
        """agent-outcome.json."""
        found: dict[str, Any] = json.loads((self.folder / "agent-outcome.json").read_text())
        return found

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The events of one kind, or all."""
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if not kind or e["kind"] == kind]

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all model requests."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def close(self) -> None:
        """Ends the server."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        subprocess.run(["rm", "-rf", self.socket.parent], check=True)
